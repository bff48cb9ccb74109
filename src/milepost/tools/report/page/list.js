// A list of any length: only the rows that can be seen exist. One stop for the Tab key; arrows move within.

let lists = 0;

class RowList {
  // `draw(item, row)` fills the element of a row; `open(item)` is called by Enter and by a click.
  constructor(place, { height, most, role, label, draw, open, key = null }) {
    lists += 1;
    this.id = `list-${lists}`;
    this.height = height;
    this.most = most;
    this.draw = draw;
    this.open = open;
    this.key = key;
    this.rowRole = role === "tree" ? "treeitem" : "option";
    this.items = [];
    this.active = 0;
    this.chosen = null;
    this.space = element("div");
    this.box = element("div", { class: "list", tabindex: 0, role, "aria-label": label }, this.space);
    place.append(this.box);
    this.box.addEventListener("scroll", () => this.show());
    this.box.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.show()).observe(this.box);
  }

  set(items, empty = "Nothing is found.") {
    this.items = items;
    this.active = Math.min(this.active, Math.max(0, items.length - 1));
    this.space.style.height = `${items.length * this.height}px`;
    this.box.style.height = `${Math.max(2, Math.min(this.most, items.length || 2)) * this.height + 2}px`;
    this.nothing = items.length ? null : empty;
    this.show();
  }

  show() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 4);
    const last = Math.min(this.items.length, first + Math.ceil(this.box.clientHeight / this.height) + 9);
    const made = [];
    for (let at = first; at < last; at += 1) {
      const item = this.items[at];
      const row = element("div", { class: "row", role: this.rowRole, id: `${this.id}-${at}`, "aria-setsize": this.items.length, "aria-posinset": at + 1 });
      row.style.height = `${this.height}px`;
      row.style.transform = `translateY(${at * this.height}px)`;
      row.classList.toggle("active", at === this.active);
      row.classList.toggle("chosen", item === this.chosen);
      row.setAttribute("aria-selected", String(item === this.chosen));
      row.addEventListener("click", (event) => {
        this.active = at;
        this.open(item, event);
        this.show();
      });
      this.draw(item, row);
      made.push(row);
    }
    if (this.nothing) made.push(element("div", { class: "empty", text: this.nothing }));
    this.space.replaceChildren(...made);
    if (this.items.length) this.box.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  choose(item, follows = false) {
    this.chosen = item;
    const at = follows ? this.items.indexOf(item) : -1;
    if (at >= 0) this.move(at);
    else this.show();
  }

  move(at) {
    this.active = Math.max(0, Math.min(this.items.length - 1, at));
    const top = this.active * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + this.height - this.box.clientHeight;
    this.show();
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.items.length) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const item = this.items[this.active];
    if (event.key in steps) this.move(Math.max(0, Math.min(this.items.length - 1, this.active + steps[event.key])));
    else if (event.key === "Enter" || event.key === " ") this.open(item, event);
    else if (!this.key || !this.key(item, event.key)) return;
    event.preventDefault();
    this.show();
  }
}
