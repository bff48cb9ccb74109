// The data of the page, and what follows from it: who is below whom, and what everything below an object adds up to.

async function load() {
  const packed = Uint8Array.from(atob(byId("data").textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const MOST_NAMES = 60;

class Model {
  constructor(data) {
    this.data = data;
    const { depth, tensor } = data.outline;
    this.rows = depth.length;
    this.count = data.bytes.length;
    this.parent = new Int32Array(this.rows).fill(-1);
    this.end = new Int32Array(this.rows);
    this.size = new Float64Array(this.rows);
    this.held = new Int32Array(this.rows);
    this.slots = new Float64Array(this.rows);
    this.alarms = new Int32Array(this.rows);
    this.rowOf = new Int32Array(this.count).fill(-1);
    const above = [];
    for (let row = 0; row < this.rows; row += 1) {
      while (above.length > depth[row]) this.end[above.pop()] = row;
      if (above.length) this.parent[row] = above[above.length - 1];
      above.push(row);
      if (tensor[row] >= 0) this.rowOf[tensor[row]] = row;
    }
    while (above.length) this.end[above.pop()] = this.rows;
    for (let row = this.rows - 1; row >= 0; row -= 1) {
      const place = tensor[row];
      if (place >= 0) {
        this.size[row] += data.bytes[place];
        this.held[row] += 1;
        if (this.role(row) === "s") this.slots[row] += data.bytes[place];
        this.alarms[row] += Number(this.isAlarming(place));
      }
      const parent = this.parent[row];
      if (parent >= 0) {
        this.size[parent] += this.size[row];
        this.held[parent] += this.held[row];
        this.slots[parent] += this.slots[row];
        this.alarms[parent] += this.alarms[row];
      }
    }
    const owners = data.outline.name.filter((name) => name.startsWith(MARKER)).map((name) => name.slice(MARKER.length, name.lastIndexOf("/")));
    this.hasOneOwner = new Set(owners).size === 1;
    this.moved = new Map(data.movement.tensor.map((place, at) => [place, at]));
    this.top = this.childrenOf(-1);
    this.total = data.checkpoints[data.checkpoints.length - 1].bytes;
  }

  childrenOf(row) {
    const found = [];
    const end = row < 0 ? this.rows : this.end[row];
    for (let child = row + 1; child < end; child = this.end[child]) found.push(child);
    return found;
  }

  hasChildren(row) {
    return this.end[row] > row + 1;
  }

  role(row) {
    return this.data.outline.role[row];
  }

  // The name of a row as people read it.
  label(row) {
    const name = this.data.outline.name[row];
    if (name.startsWith(MARKER)) {
      const parts = name.slice(MARKER.length).split("/");
      return `${parts.pop()} (slot of ${parts.join("/")})`;
    }
    if (name.startsWith(ATTRIBUTES)) return name.slice(ATTRIBUTES.length);
    const own = this.data.outline.own[row];
    // a name of spaces, or of none, would not be seen
    return `${name.trim() ? name : `'${name}'`}${own ? ` (${own})` : ""}`;
  }

  // The same where there is little room: if there is one optimizer, its slot variables do not each name it.
  shortLabel(row) {
    const name = this.data.outline.name[row];
    return this.hasOneOwner && name.startsWith(MARKER) ? name.slice(name.lastIndexOf("/") + 1) : this.label(row);
  }

  // What the objects that lead to a row are called themselves; empty if that is not known.
  ownNames(row) {
    const names = [];
    for (let at = row; at >= 0; at = this.parent[at]) if (this.data.outline.own[at]) names.push(this.data.outline.own[at]);
    return names.reverse().join("/");
  }

  path(row) {
    const names = [];
    for (let at = row; at >= 0; at = this.parent[at]) names.push(this.data.outline.name[at]);
    return names.reverse().join(this.data.outline.separator);
  }

  key(place) {
    const row = this.rowOf[place];
    return this.data.outline.keys[row] ?? this.path(row) + this.data.outline.suffix;
  }

  // The name of a tensor as lists have it: what comes at the end of each alike is left out.
  name(place, isShort = false) {
    const row = this.rowOf[place];
    const above = this.parent[row];
    const isPlain = !/^\.(OPTIMIZER_SLOT|ATTRIBUTES)\//.test(this.data.outline.name[row]);
    // names of a file of another library may hold dots and slashes
    if (this.data.outline.suffix === "" && this.data.outline.keys[row] !== undefined) return this.data.outline.keys[row];
    return isPlain || above < 0 ? this.path(row) : `${this.path(above)} · ${isShort ? this.shortLabel(row) : this.label(row)}`;
  }

  // All names in small letters, to search in; made when they are first asked for.
  get searched() {
    if (!this.lower) {
      const { depth, name, separator, own } = this.data.outline;
      const above = [];
      this.lower = name.map((each, row) => {
        above.length = depth[row];
        above.push((own[row] ? `${each} (${own[row]})` : each).toLowerCase());
        // of a very deep object its last names, since all of all objects would take memory in proportion to the square of the depth
        return above.slice(-MOST_NAMES).join(separator);
      });
    }
    return this.lower;
  }

  spec(place) {
    const [dtype, shape] = this.data.specs[this.data.spec[place]];
    return `${dtype}[${shape.join(",")}]`;
  }

  dtype(place) {
    return this.data.specs[this.data.spec[place]][0];
  }

  elements(place) {
    return this.data.specs[this.data.spec[place]][1].reduce((product, size) => product * size, 1);
  }

  statistic(name, place) {
    const column = this.data.statistics[name];
    if (Array.isArray(column)) return column[place];
    return column[place] ?? 0;
  }

  isMeasured(place) {
    return this.data.statistics.norm[place] !== null || this.hasBadNumbers(place);
  }

  hasBadNumbers(place) {
    return this.statistic("nan", place) > 0 || this.statistic("infinite", place) > 0;
  }

  isAlarming(place) {
    return this.hasBadNumbers(place) || this.data.problems[place] !== undefined;
  }

  isZero(place) {
    const { minimum, maximum } = this.data.statistics;
    return minimum[place] === 0 && maximum[place] === 0;
  }

  isConstant(place) {
    const { minimum, maximum, deviation } = this.data.statistics;
    return minimum[place] !== null && minimum[place] === maximum[place] && deviation[place] === 0 && this.elements(place) > 1;
  }
}
