// All tensors as a table that sorts.

const WIDTHS = { spec: 128, bytes: 66, minimum: 70, maximum: 70, mean: 70, deviation: 70, norm: 66, zeros: 54 };

class TensorTable {
  constructor(model, state) {
    this.model = model;
    this.state = state;
    this.order = "bytes";
    this.falls = true;
    this.query = "";
    const columns = [["name", "name", ""], ["spec", "type", "wide-only"], ["bytes", "bytes", ""]];
    if (model.data.values) {
      for (const [name, text] of [["minimum", "min"], ["mean", "mean"], ["maximum", "max"], ["deviation", "std"], ["norm", "norm"], ["zeros", "zeros"]]) {
        columns.push([name, text, name === "deviation" || name === "mean" ? "wide-only widest-only" : "wide-only"]);
      }
    }
    this.columns = columns;
    this.head = element("div", { class: "head" });
    byId("tensor-list").append(this.head);
    this.list = new RowList(byId("tensor-list"), {
      height: 30,
      most: 20,
      role: "listbox",
      label: "Tensors",
      draw: (place, made) => this.draw(place, made),
      open: (place) => state.select(place, false),
    });
    const filters = [["all", "all tensors"], ["alarm", "with NaN, infinity or damage"], ["zero", "all zeros"], ["constant", "all the same value"]];
    const choice = byId("tensor-filter");
    for (const [value, text] of filters) choice.append(element("option", { value, text }));
    choice.disabled = !model.data.values;
    choice.addEventListener("change", () => this.show());
    byId("tensor-search").addEventListener("input", later((event) => {
      this.query = event.target.value.trim().toLowerCase();
      this.show();
    }));
    this.show();
  }

  show() {
    const { model } = this;
    const filter = byId("tensor-filter").value;
    const tests = { alarm: (place) => model.isAlarming(place), zero: (place) => model.isZero(place), constant: (place) => model.isConstant(place) };
    const found = [];
    for (let place = 0; place < model.count; place += 1) {
      if (tests[filter] && !tests[filter](place)) continue;
      if (this.query && !model.searched[model.rowOf[place]].includes(this.query) && !model.spec(place).includes(this.query)) continue;
      found.push(place);
    }
    const sign = this.falls ? -1 : 1;
    if (this.order === "name") found.sort((a, b) => (model.rowOf[a] - model.rowOf[b]) * -sign);
    else if (this.order === "spec") found.sort((a, b) => (model.spec(a) < model.spec(b) ? 1 : -1) * sign);
    else {
      const value = this.order === "bytes" ? (place) => model.data.bytes[place] : this.order === "zeros" ? (place) => model.statistic("zeros", place) / Math.max(1, model.elements(place)) : (place) => model.statistic(this.order, place) ?? -sign * Infinity;
      const values = new Map(found.map((place) => [place, value(place)]));
      found.sort((a, b) => {
        const [first, second] = [values.get(a), values.get(b)];
        return first === second ? model.rowOf[a] - model.rowOf[b] : (first - second) * sign;
      });
    }
    this.header();
    this.list.set(found, "No tensor is like that.");
  }

  header() {
    this.head.replaceChildren(
      ...this.columns.map(([name, text, kind]) => {
        const arrow = this.order === name ? (this.falls ? " ↓" : " ↑") : "";
        const made = element("button", { type: "button", class: `${name === "name" ? "name" : "number"} ${kind}`, "aria-pressed": String(this.order === name), text: text + arrow, click: () => this.sort(name) });
        made.style.textAlign = name === "name" ? "left" : "right";
        if (name !== "name") made.style.width = `${WIDTHS[name]}px`;
        return made;
      }),
    );
  }

  sort(name) {
    this.falls = this.order === name ? !this.falls : true;
    this.order = name;
    this.show();
  }

  draw(place, made) {
    const { model } = this;
    for (const [name, , kind] of this.columns) {
      if (name === "name") {
        made.append(element("span", { class: `dot role-${model.role(model.rowOf[place])}` }), nameElement(model.name(place, true), model.name(place)));
        if (model.isAlarming(place)) made.append(element("span", { class: "bad", text: "!", title: "NaN, infinity or damage" }));
        continue;
      }
      const zeros = model.statistic("zeros", place);
      const text = { spec: () => model.spec(place), bytes: () => bytes(model.data.bytes[place]), zeros: () => (model.isMeasured(place) ? percent(zeros / Math.max(1, model.elements(place))) : "–") }[name];
      const cell = element("span", { class: `number ${kind}${name === "spec" ? " spec" : ""}`, text: text ? text() : number(model.statistic(name, place)) });
      cell.style.width = `${WIDTHS[name]}px`;
      made.append(cell);
    }
  }

  choose(place) {
    this.list.choose(place, false);
  }
}
