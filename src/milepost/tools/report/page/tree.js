// The objects of the checkpoint as a tree that folds.

const MOST_OPEN = 30;

class ObjectTree {
  constructor(model, state) {
    this.model = model;
    this.state = state;
    this.opened = new Uint8Array(model.rows);
    this.level = 0;
    this.query = "";
    const hasGraph = model.data.outline.objects !== null;
    byId("objects-about").textContent = hasGraph
      ? "The object graph, by the names of attributes, list positions and dictionary keys. Keys: arrows fold and unfold, Enter shows a tensor."
      : "Names as the file has them, at their dots and slashes; it has no object graph. Keys: arrows fold and unfold, Enter shows a tensor.";
    const roles = [["o", "object"], ["p", "optimizer"], ["v", "variable"], ["s", "slot variable"], ["r", "record of the checkpoint"]];
    const used = roles.filter(([role]) => model.data.outline.role.includes(role));
    byId("objects-about").after(element("div", { class: "legend" }, ...used.map(([role, text]) => element("span", { class: `role-${role}`, text }))));
    this.list = new RowList(byId("tree"), {
      height: 28,
      most: 18,
      role: "tree",
      label: "Objects",
      draw: (row, made) => this.draw(row, made),
      open: (row, event) => this.open(row, event),
      key: (row, key) => this.pressed(row, key),
    });
    byId("unfold").addEventListener("click", () => this.unfold(this.level + 1));
    byId("fold").addEventListener("click", () => this.unfold(0));
    byId("tree-search").addEventListener("input", later((event) => this.search(event.target.value)));
    let fits = 0;
    while (fits < 12 && this.countTo(fits + 1) <= MOST_OPEN) fits += 1;
    this.unfold(fits);
  }

  countTo(level) {
    const { depth } = this.model.data.outline;
    let count = 0;
    for (let row = 0; row < this.model.rows && count <= MOST_OPEN; row += 1) count += Number(depth[row] <= level);
    return count;
  }

  unfold(level) {
    const { depth } = this.model.data.outline;
    let deepest = 0;
    for (let row = 0; row < this.model.rows; row += 1) {
      this.opened[row] = Number(depth[row] < level);
      if (depth[row] > deepest) deepest = depth[row];
    }
    this.level = Math.min(level, deepest);
    this.show();
  }

  search(text) {
    this.query = text.trim().toLowerCase();
    this.show();
  }

  // The rows that can be seen. Of a search: what is found, and what is above it.
  show() {
    const { model } = this;
    const found = [];
    if (!this.query) {
      for (let row = 0; row < model.rows; row = this.opened[row] ? row + 1 : model.end[row]) found.push(row);
    } else {
      const names = model.searched;
      const wanted = new Uint8Array(model.rows);
      for (let row = model.rows - 1; row >= 0; row -= 1) {
        if (wanted[row] || names[row].includes(this.query)) {
          wanted[row] = 1;
          if (model.parent[row] >= 0) wanted[model.parent[row]] = 1;
        }
      }
      for (let row = 0; row < model.rows; row += 1) if (wanted[row]) found.push(row);
    }
    this.list.set(found, "No object has such a name.");
  }

  draw(row, made) {
    const { model } = this;
    const { depth, tensor } = model.data.outline;
    const place = tensor[row];
    const isOpen = this.query ? true : Boolean(this.opened[row]);
    made.setAttribute("aria-level", depth[row] + 1);
    if (model.hasChildren(row)) made.setAttribute("aria-expanded", String(isOpen));
    const indent = element("span", { class: "twisty", text: model.hasChildren(row) ? (isOpen ? "▾" : "▸") : "" });
    // of a deep object, room is left for its name
    indent.style.marginLeft = `min(${depth[row] * 14}px, 25%)`;
    const alarm = model.alarms[row] ? element("span", { class: "bad", text: "!", title: "NaN, infinity or damage" }) : null;
    const what = place >= 0 ? model.spec(place) : model.held[row] ? `${plural(model.held[row], "tensor")}` : "no tensors";
    const share = element("span", { class: "share wide-only" }, element("div"));
    if (model.held[row]) share.firstChild.style.width = `${(100 * model.size[row]) / Math.max(1, model.total)}%`;
    else share.style.visibility = "hidden";
    const size = element("span", { class: "number", text: model.held[row] ? bytes(model.size[row]) : "" });
    size.style.width = "76px";
    made.append(
      indent,
      element("span", { class: `dot role-${model.role(row)}` }),
      element("span", { class: "name", text: model.label(row), title: model.path(row) }),
    );
    if (alarm) made.append(alarm);
    made.append(element("span", { class: "spec number wide-only", text: what }), share, size);
  }

  open(row, event) {
    const place = this.model.data.outline.tensor[row];
    if (place >= 0 && !event.target?.classList?.contains("twisty")) this.state.select(place, false);
    if (this.model.hasChildren(row) && !this.query) {
      if (place < 0 || event.target?.classList?.contains("twisty")) {
        this.opened[row] = 1 - this.opened[row];
        this.show();
      }
    }
  }

  pressed(row, key) {
    const { model } = this;
    if (key === "ArrowRight" && model.hasChildren(row)) {
      if (this.opened[row] || this.query) this.list.move(this.list.active + 1);
      else {
        this.opened[row] = 1;
        this.show();
      }
      return true;
    }
    if (key === "ArrowLeft") {
      if (this.opened[row] && model.hasChildren(row) && !this.query) {
        this.opened[row] = 0;
        this.show();
      } else if (model.parent[row] >= 0) this.list.move(this.list.items.indexOf(model.parent[row]));
      return true;
    }
    return false;
  }

  // Shows where a tensor is.
  choose(place, follows) {
    const row = this.model.rowOf[place];
    if (follows && !this.query) {
      for (let above = this.model.parent[row]; above >= 0; above = this.model.parent[above]) this.opened[above] = 1;
      this.show();
    }
    this.list.choose(row, follows);
  }
}
