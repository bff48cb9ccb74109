// How tensors moved from one checkpoint to another.

class Changes {
  constructor(model, state) {
    const { data } = model;
    this.model = model;
    this.state = state;
    this.query = "";
    byId("changes").hidden = false;
    byId("to-changes").hidden = false;
    const choice = byId("pair");
    data.pairs.forEach((pair, at) => {
      choice.append(element("option", { value: at, text: `${shortName(data, pair.old)} with ${shortName(data, pair.new)}` }));
    });
    choice.value = String(data.pairs.length - 1);
    choice.addEventListener("change", () => this.show());
    byId("changes-search").addEventListener("input", later((event) => {
      this.query = event.target.value.trim().toLowerCase();
      this.show();
    }));
    this.list = new RowList(byId("change-list"), {
      height: 32,
      most: 14,
      role: "listbox",
      label: "Tensors, those that moved most first",
      draw: (place, made) => this.draw(place, made),
      open: (place) => state.select(place, false),
    });
    this.show();
  }

  show() {
    const { model } = this;
    const { movement, pairs } = model.data;
    this.pair = Number(byId("pair").value);
    const pair = pairs[this.pair];
    byId("change-counts").replaceChildren(
      ...Object.entries(pair.counts)
        .filter(([kind, count]) => count || kind === "changed" || kind === "unchanged")
        .map(([kind, count]) => element("span", { class: "chip", text: kind === "unchanged" && !pair.values ? `${whole(count)} of the same name, type and shape` : `${whole(count)} ${kind}` })),
    );
    const relative = movement.relative[this.pair];
    const value = (at) => ({ infinite: Infinity, text: -1 })[relative[at]] ?? relative[at];
    const found = movement.tensor.filter((place, at) => relative[at] !== null && movement.unequal[this.pair][at] > 0 && (!this.query || model.searched[model.rowOf[place]].includes(this.query)));
    found.sort((a, b) => value(model.moved.get(b)) - value(model.moved.get(a)) || a - b);
    const nothing = pair.values ? "No tensor of this name has other values." : "No values were read.";
    this.list.set(found, pair.counts.changed ? nothing : pair.values ? "No tensor has other values." : "No values were read.");
    const left = movement.left_out;
    byId("change-left").textContent = left ? `The list has the ${whole(movement.tensor.length)} tensors that moved most; ${plural(left, "other")} are counted above, and milepost diff lists them.` : "";
    this.structure(pair);
  }

  draw(place, made) {
    const { model } = this;
    const { movement } = model.data;
    const at = model.moved.get(place);
    const relative = movement.relative[this.pair][at];
    const share = element("span", { class: "share wide-only" }, element("div"));
    // from a millionth to the whole norm, in powers of ten
    const tall = relative === "infinite" ? 1 : relative === "text" ? 0 : Math.max(0.02, Math.min(1, 1 + Math.log10(Math.max(relative, 1e-6)) / 6));
    share.firstChild.style.width = `${100 * tall}%`;
    const amount = element("span", { class: "number", text: percentOf(relative) });
    amount.style.width = "70px";
    const chart = element("span", { class: "wide-only" }, spark(movement.norms.map((column) => column[at])));
    const spec = element("span", { class: "number spec wide-only", text: model.spec(place) });
    spec.style.width = "130px";
    made.append(element("span", { class: `dot role-${model.role(model.rowOf[place])}` }), nameElement(model.name(place, true), model.name(place)), spec, chart, share, amount);
  }

  structure(pair) {
    const box = byId("structure");
    if (!pair.structure.length) {
      box.replaceChildren();
      return;
    }
    const rows = pair.structure.slice(0, 200).map(([kind, name, before, after, size]) =>
      element("tr", {}, element("td", { text: name }), element("td", { class: "text", text: kind }), element("td", { text: before === after ? before : [before, after].filter(Boolean).join(" → ") }), element("td", { text: bytes(size) })),
    );
    const left = pair.structure.length - rows.length + pair.structure_left_out;
    const heads = ["tensor", "what", "type", "bytes"];
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { text, scope: "col" })))), element("tbody", {}, ...rows));
    const details = element("details", {}, element("summary", { text: `Added, removed, reshaped: ${plural(pair.structure.length + pair.structure_left_out, "tensor")}` }), element("div", { class: "scroll" }, table));
    if (left) details.append(element("p", { class: "muted", text: `and ${whole(left)} more; milepost diff lists all` }));
    details.open = pair.structure.length <= 20;
    box.replaceChildren(details);
  }

  choose(place) {
    this.list.choose(place, false);
  }
}

function shortName(data, at) {
  const names = data.checkpoints.map((each) => each.path.split(/[\\/]/).filter(Boolean));
  const name = names[at][names[at].length - 1] ?? "";
  const same = names.filter((each) => each[each.length - 1] === name).length;
  return same > 1 ? names[at].slice(-2).join("/") : name;
}

function percentOf(relative) {
  if (relative === "infinite") return "from zero";
  if (relative === "text") return "other text";
  if (relative >= 10) return `×${number(relative, 3)}`;
  if (relative >= 0.0001) return `${number(relative * 100, 3)} %`;
  return number(relative, 3);
}
