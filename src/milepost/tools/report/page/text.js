// Text and elements. Whatever comes from a checkpoint goes through `textContent` or an attribute, never through HTML.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const MARKER = ".OPTIMIZER_SLOT/";
const ATTRIBUTES = ".ATTRIBUTES/";

function bytes(count) {
  let amount = count;
  let unit = 0;
  while (amount >= 1000 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return unit ? `${amount.toFixed(1)} ${UNITS[unit]}` : `${count} B`;
}

function whole(count) {
  return count.toLocaleString("en-US");
}

function plural(count, noun) {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

// A number in at most nine characters or so. What is not known, or not finite, has a dash.
function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(digits - 2).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
}

function percent(part) {
  return part === 0 ? "0 %" : part < 0.001 ? "< 0.1 %" : `${(part * 100).toFixed(1)} %`;
}

// The beginning of a text that is too long. A letter that takes two units of UTF-16 is not halved.
function cut(text, most) {
  return `${Array.from(text).slice(0, most - 1).join("").replace(/[ …]+$/, "")}…`;
}

// An element. `properties` has `class`, `text`, and attributes by their names.
function element(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

function drawing(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name === "click") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

// A long name whose end is what matters: the beginning is cut off where it does not fit.
function nameElement(text, title) {
  return element("span", { class: "name end", title }, element("bdi", { text }));
}

function later(action, wait = 120) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), wait);
  };
}
