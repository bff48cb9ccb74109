// All that is known of one tensor.

class TensorPanel {
  constructor(model) {
    this.model = model;
    this.place = byId("tensor");
    this.place.append(element("h2", { text: "No tensor is chosen" }), element("p", { class: "muted", text: "Choose one in a list, in the tree or in the picture of bytes." }));
  }

  show(place) {
    const { model } = this;
    const { data } = model;
    const row = model.rowOf[place];
    const key = model.key(place);
    const parts = [
      element("button", { type: "button", class: "close", text: "Close", click: () => this.close() }),
      element("h2", { text: model.name(place) }),
      element("p", { class: "muted", text: `${model.spec(place)} · ${bytes(data.bytes[place])} · ${plural(model.elements(place), "element")}` }),
    ];
    if (data.problems[place] !== undefined) parts.push(element("div", { class: "notice", text: data.problems[place] }));
    parts.push(...this.values(place));
    parts.push(...this.movement(place));
    const facts = [["key", key]];
    const others = data.outline.others[row];
    if (others) facts.push(["also", others.join(", ")]);
    const own = model.ownNames(row);
    if (own) facts.push(["named", own]);
    facts.push(["share", `${percent(data.bytes[place] / Math.max(1, model.total))} of all bytes`]);
    parts.push(element("h3", { text: "In the file" }), factList(facts));
    parts.push(element("h3", { text: "Its values, on a command line" }), element("code", { text: `milepost show ${quoted(data.checkpoints[data.checkpoints.length - 1].path)} ${quoted(key)}` }));
    this.place.replaceChildren(...parts);
    this.place.scrollTop = 0;
  }

  // Where there is no room beside the lists, it covers them. So it takes the focus, and gives it back when it closes.
  open() {
    document.body.classList.add("has-tensor");
    if (getComputedStyle(this.place).position !== "fixed") return;
    if (!this.place.contains(document.activeElement)) this.before = document.activeElement;
    this.place.focus({ preventScroll: true });
  }

  values(place) {
    const { model } = this;
    const count = model.elements(place);
    if (!model.isMeasured(place)) {
      const isDamaged = model.data.problems[place] !== undefined;
      const text = isDamaged ? "It has no statistics, since it is damaged." : !model.data.values ? "Its values were not read." : count ? "There are no statistics of values of this type." : "It has no elements.";
      return [element("p", { class: "muted", text })];
    }
    const shown = model.data.histograms[place];
    const parts = [];
    if (shown) parts.push(element("h3", { text: "How its values are distributed" }), histogram(shown, count));
    else if (model.isConstant(place)) parts.push(element("p", { text: `Every value is ${number(model.statistic("mean", place), 6)}.` }));
    else if (count === 1) parts.push(element("p", { text: `Its value is ${number(model.statistic("mean", place), 6)}.` }));
    else if (count > 1) parts.push(element("p", { class: "muted", text: "This page has no histogram of it, since it is one of many small ones." }));
    const facts = [["min", "minimum"], ["max", "maximum"], ["mean", "mean"], ["std", "deviation"], ["norm", "norm"]].map(([text, name]) => [text, number(model.statistic(name, place), 6)]);
    if (model.dtype(place).startsWith("complex")) facts.unshift(["of", "absolute values"]);
    const zeros = model.statistic("zeros", place);
    facts.push(["zeros", `${whole(zeros)} (${percent(zeros / Math.max(1, count))})`]);
    const list = factList(facts);
    for (const [text, name] of [["NaN", "nan"], ["infinite", "infinite"]]) {
      const bad = model.statistic(name, place);
      list.append(element("dt", { text }), element("dd", { class: bad ? "bad" : "", text: whole(bad) }));
    }
    parts.push(list);
    return parts;
  }

  movement(place) {
    const { model } = this;
    const { movement, pairs, checkpoints } = model.data;
    const at = model.moved.get(place);
    if (at === undefined || checkpoints.length < 2) return [];
    const labels = checkpoints.map((_, each) => shortName(model.data, each));
    const parts = [];
    if (checkpoints.length > 2) {
      parts.push(lineChart("Norm", movement.norms.map((column) => column[at]), labels));
      const steps = movement.relative.slice(0, checkpoints.length - 1).map((column) => column[at]);
      parts.push(lineChart("Relative change from one to the next", steps, [`to ${labels[1]}`, `to ${labels[labels.length - 1]}`], true));
    }
    const last = pairs.length - 1;
    const relative = movement.relative[last][at];
    if (relative !== null) {
      parts.push(element("h3", { text: `From ${labels[pairs[last].old]} to ${labels[pairs[last].new]}` }));
      parts.push(
        factList([
          ["relative change", percentOf(relative)],
          ["largest change", relative === "text" ? "–" : number(movement.largest[last][at], 4)],
          ["values that changed", `${whole(movement.unequal[last][at])} of ${whole(model.elements(place))}`],
          ["norm", `${number(movement.norms[pairs[last].old][at])} → ${number(movement.norms[pairs[last].new][at])}`],
        ]),
      );
    }
    return parts;
  }

  close() {
    const hadFocus = this.place.contains(document.activeElement);
    document.body.classList.remove("has-tensor");
    if (hadFocus) this.before?.focus({ preventScroll: true });
  }
}

function factList(facts) {
  return element("dl", {}, ...facts.flatMap(([name, text]) => [element("dt", { text: name }), element("dd", { text })]));
}

function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
