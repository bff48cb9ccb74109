// Bytes as areas: the squarified treemap of Bruls, Huizing and van Wijk (2000). Groups are boxes with a name, tensors are coloured by role.

const LEAST_AREA = 220;
const STRIP = 17;
const LETTER = 6.8;
const MOST_BUNDLES = 64;
const BUNDLE_AREA = 4000;

// Divides a box among sizes, largest first, into boxes that are as square as can be.
function squarified(sizes, box) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const scale = total ? (box.w * box.h) / total : 0;
  const found = [];
  let { x, y, w, h } = box;
  let at = 0;
  while (at < sizes.length) {
    const side = Math.max(1e-9, Math.min(w, h));
    let filled = 0;
    let best = Infinity;
    let next = at;
    while (next < sizes.length) {
      const grown = filled + sizes[next] * scale;
      const worst = Math.max((side * side * sizes[at] * scale) / (grown * grown), (grown * grown) / (side * side * sizes[next] * scale));
      if (worst > best) break;
      best = worst;
      filled = grown;
      next += 1;
    }
    const thick = filled / side;
    let along = w < h ? x : y;
    for (; at < next; at += 1) {
      const length = (sizes[at] * scale) / (thick || 1);
      found.push(w < h ? { x: along, y, w: length, h: thick } : { x, y: along, w: thick, h: length });
      along += length;
    }
    if (w < h) {
      y += thick;
      h -= thick;
    } else {
      x += thick;
      w -= thick;
    }
  }
  return found;
}

function sum(parts) {
  return parts.reduce((total, part) => total + part.size, 0);
}

class Treemap {
  constructor(model, state) {
    this.model = model;
    this.state = state;
    this.place = byId("treemap");
    this.focus = -1;
    this.only = null;
    new ResizeObserver(later(() => this.place.clientWidth !== this.wide && this.draw(), 60)).observe(this.place);
    const roles = [["v", "variable"], ["s", "slot variable"]].filter(([role]) => model.data.outline.role.includes(role));
    const records = model.top.filter((row) => model.role(row) === "r").map((row) => `${model.label(row)} ${bytes(model.size[row])}`);
    this.several = element("div", { text: "Dashed: several small ones" });
    byId("treemap-legend").replaceChildren(
      ...roles.map(([role, text]) => element("span", { class: `role-${role}`, text })),
      this.several,
      ...(records.length ? [element("div", { text: `Not drawn: ${records.join(", ")}` })] : []),
    );
  }

  // The bytes that are drawn of a row, or of everything.
  size(row) {
    const { model } = this;
    if (row >= 0) return model.size[row];
    return model.top.reduce((sum, child) => sum + (model.role(child) === "r" ? 0 : model.size[child]), 0);
  }

  // The rows below one that have bytes, the tensor of the row itself among them, and some entries for those that are too small to see.
  parts(row, area) {
    const found = this.only && row === this.focus ? [...this.only] : this.below(row);
    found.sort((a, b) => b.size - a.size);
    const total = sum(found);
    const least = (LEAST_AREA / 2 / Math.max(area, 1)) * total;
    const shown = found.filter((part) => part.size >= least);
    const rest = found.slice(shown.length);
    if (rest.length > 1) shown.push(...this.bundles(row, rest, area * (sum(rest) / total)));
    else shown.push(...rest);
    return shown.sort((a, b) => b.size - a.size);
  }

  below(row) {
    const { model } = this;
    const found = model.childrenOf(row).filter((child) => model.size[child] > 0 && model.role(child) !== "r").map((child) => ({ row: child, size: model.size[child] }));
    const own = row < 0 ? -1 : model.data.outline.tensor[row];
    if (own >= 0 && found.length) found.push({ row, size: model.data.bytes[own], isOwn: true });
    return found;
  }

  // Many small parts as a few of about equal size, each of neighbours.
  bundles(row, parts, area) {
    const count = Math.max(1, Math.min(MOST_BUNDLES, Math.floor(area / BUNDLE_AREA), Math.floor(parts.length / 2)));
    const total = sum(parts);
    const found = [];
    let some = [];
    let done = 0;
    for (const part of [...parts].sort((a, b) => a.row - b.row)) {
      some.push(part);
      done += part.size;
      if (done >= (total * (found.length + 1)) / count) {
        found.push({ rest: some, size: sum(some), parent: row });
        some = [];
      }
    }
    if (some.length) found.push({ rest: some, size: sum(some), parent: row });
    return found;
  }

  draw() {
    const wide = this.place.clientWidth;
    this.wide = wide;
    if (!wide) return;
    const high = Math.round(Math.max(260, Math.min(460, wide * 0.55)));
    this.order = [];
    this.several.hidden = true;
    const svg = drawing("svg", { viewBox: `0 0 ${wide} ${high}`, height: high, tabindex: 0, role: "application", "aria-label": "Treemap of bytes. Arrow keys move, Enter opens, Escape goes up." });
    this.fill(svg, this.focus, { x: 0, y: 0, w: wide, h: high }, null);
    if (!this.order.length) svg.append(drawing("text", { class: "empty", x: 10, y: 20, text: "no bytes" }));
    svg.addEventListener("keydown", (event) => this.pressed(event));
    this.svg = svg;
    this.place.replaceChildren(svg);
    this.mark(this.order[0]);
    this.crumbs();
  }

  fill(parent, row, box, above) {
    const parts = this.parts(row, box.w * box.h);
    const boxes = squarified(parts.map((part) => part.size), box);
    const siblings = [];
    parts.forEach((part, at) => {
      const entry = this.box(part, boxes[at], above, siblings);
      parent.append(entry.node);
    });
    return siblings;
  }

  box(part, { x, y, w, h }, above, siblings) {
    const { model } = this;
    let { row } = part;
    let name = part.rest ? this.range(part.rest) : model.shortLabel(row);
    // a chain of objects that hold one other each is one box
    while (!part.rest && !part.isOwn && model.data.outline.tensor[row] < 0) {
      const below = model.childrenOf(row).filter((child) => model.size[child] > 0);
      if (below.length !== 1) break;
      [row] = below;
      name += `/${model.label(row)}`;
    }
    const isGroup = !part.rest && !part.isOwn && model.hasChildren(row) && model.held[row] > 1;
    const place = part.rest || isGroup ? -1 : model.data.outline.tensor[row];
    const letters = Math.floor((w - 8) / LETTER);
    const hasStrip = h > STRIP && (letters > 3 || name.length <= letters);
    // a group without room for what is in it is one box in the colour of most of it
    const isOpen = isGroup && hasStrip && h > STRIP + 14 && w > 34;
    const slots = part.rest ? part.rest.reduce((all, each) => all + model.slots[each.row], 0) : model.slots[row];
    const role = part.rest || isGroup ? (slots * 2 > part.size ? "s" : "v") : model.role(row);
    const alarm = part.rest ? part.rest.some((each) => model.alarms[each.row] > 0) : model.alarms[row] > 0;
    if (part.rest) this.several.hidden = false;
    const node = drawing("g", { class: `${isOpen ? "group" : "leaf"} role-${role}${part.rest ? " rest" : ""}${alarm && !isOpen ? " alarm" : ""}` });
    const held = part.rest ? part.rest.reduce((all, each) => all + (each.isOwn ? 1 : model.held[each.row]), 0) : 0;
    const what = part.rest ? plural(held, "tensor") : isGroup ? plural(model.held[row], "tensor") : place >= 0 ? model.spec(place) : "";
    node.append(drawing("title", { text: `${part.rest ? (part.parent >= 0 ? `${model.path(part.parent)}: ${name}` : name) : model.path(row)}\n${what}${what ? ", " : ""}${bytes(part.size)}` }));
    node.append(drawing("rect", { x: x.toFixed(1), y: y.toFixed(1), width: Math.max(0, w).toFixed(1), height: Math.max(0, h).toFixed(1), rx: 2 }));
    const entry = { node, row, place, isGroup, rest: part.rest, parent: part.parent, above, siblings, name, first: null };
    siblings.push(entry);
    this.order.push(entry);
    const open = () => this.open(entry);
    node.addEventListener("click", (event) => {
      event.stopPropagation();
      this.mark(entry);
      open();
    });
    if (hasStrip) {
      const size = ` · ${bytes(part.size)}`;
      const full = name.length + size.length <= letters ? name + size : name.length <= letters ? name : cut(name, letters);
      node.append(drawing("text", { x: (x + 4).toFixed(1), y: (y + 12.5).toFixed(1), text: full }));
    }
    if (isOpen) [entry.first] = this.fill(node, row, { x: x + 2, y: y + STRIP, w: w - 4, h: h - STRIP - 2 }, entry);
    return entry;
  }

  open(entry) {
    if (entry.rest) this.look(entry.parent, entry.rest);
    else if (entry.isGroup) this.look(entry.row);
    else if (entry.place >= 0) this.state.select(entry.place, true);
  }

  range(parts) {
    const { model } = this;
    return `${model.shortLabel(parts[0].row)} … ${model.shortLabel(parts[parts.length - 1].row)}`;
  }

  look(row, only = null) {
    this.focus = row;
    this.only = only;
    this.draw();
    this.svg.focus({ preventScroll: true });
  }

  up() {
    if (this.only) {
      this.look(this.focus);
      return;
    }
    let row = this.model.parent[this.focus] ?? -1;
    while (row >= 0 && this.model.held[row] === this.model.held[this.focus]) row = this.model.parent[row];
    this.look(this.focus < 0 ? -1 : row);
  }

  mark(entry) {
    if (!entry) return;
    this.active?.node.classList.remove("active");
    this.active = entry;
    entry.node.classList.add("active");
    this.svg.setAttribute("aria-description", entry.node.querySelector("title").textContent);
  }

  pressed(event) {
    const entry = this.active;
    if (!entry || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = entry.siblings.indexOf(entry);
    const targets = {
      ArrowRight: () => this.mark(entry.siblings[at + 1]),
      ArrowLeft: () => this.mark(entry.siblings[at - 1]),
      ArrowDown: () => this.mark(entry.first ?? entry.siblings[at + 1]),
      ArrowUp: () => this.mark(entry.above),
      Enter: () => this.open(entry),
      Escape: () => this.up(),
      Backspace: () => this.up(),
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    event.stopPropagation();
    targets[event.key]();
  }

  crumbs() {
    const way = [];
    for (let row = this.focus; row >= 0; row = this.model.parent[row]) way.push(row);
    const all = [element("button", { type: "button", text: "all", click: () => this.look(-1) })];
    for (const row of way.reverse()) {
      all.push(element("span", { class: "muted", text: "/" }), element("button", { type: "button", text: this.model.label(row), click: () => this.look(row) }));
    }
    if (this.only) all.push(element("span", { class: "muted", text: `/ ${this.range(this.only)}` }));
    all.push(element("span", { class: "muted", text: bytes(this.only ? sum(this.only) : this.size(this.focus)) }));
    byId("crumbs").replaceChildren(...all);
  }
}
