// Small charts: histograms, and lines over checkpoints.

const FIRST = 35;
const SKIPPED = 92;

function heights(text) {
  return Array.from(text, (letter) => {
    const code = letter.charCodeAt(0);
    return (code > SKIPPED ? code - 1 : code) - FIRST;
  });
}

// A histogram of [start, width, heights, step], and of how many elements.
function histogram([start, width, text, step], count) {
  const values = heights(text);
  const [wide, high] = [340, 120];
  const most = Math.max(...values);
  const bar = wide / values.length;
  let path = "";
  values.forEach((value, at) => {
    if (value > 0) {
      const tall = Math.max(1, (value / most) * high);
      path += `M${(at * bar + 0.5).toFixed(1)} ${high}v${(-tall).toFixed(1)}h${Math.max(0.8, bar - 1).toFixed(1)}V${high}z`;
    }
  });
  const end = start + width * values.length;
  const chart = drawing("svg", { class: "chart", viewBox: `0 -4 ${wide} ${high + 24}`, role: "img", "aria-label": `Histogram of the values from ${number(start)} to ${number(end)}` });
  chart.append(drawing("path", { class: "bars", d: path }), drawing("path", { class: "axis", d: `M0 ${high}H${wide}` }));
  if (start < 0 && end > 0) {
    const zero = (-start / (end - start)) * wide;
    chart.append(drawing("path", { class: "zero", d: `M${zero.toFixed(1)} 0V${high}` }));
    if (zero > 50 && zero < wide - 50) chart.append(drawing("text", { x: zero, y: high + 16, "text-anchor": "middle", text: "0" }));
  }
  chart.append(
    drawing("text", { x: 0, y: high + 16, text: number(start) }),
    drawing("text", { x: wide, y: high + 16, "text-anchor": "end", text: number(end) }),
  );
  const box = element("div", {}, chart);
  if (step > 1) box.append(element("p", { class: "muted", text: `A sample of about ${whole(Math.round(count / step))} values: one of every ${step}, in the order of the file.` }));
  return box;
}

// Points of a line through numbers, without those that are missing.
function points(values, wide, high) {
  const known = values.filter((value) => typeof value === "number");
  const least = Math.min(...known);
  const range = Math.max(...known) - least;
  const step = wide / Math.max(1, values.length - 1);
  return values
    .map((value, at) => (typeof value === "number" ? [at * step, range ? high - ((value - least) / range) * high : high / 2] : null))
    .filter((point) => point !== null);
}

function spark(values, wide = 84, high = 18) {
  const found = points(values, wide - 6, high - 6).map(([x, y]) => [x + 3, y + 3]);
  const chart = drawing("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, "aria-hidden": "true" });
  if (found.length > 1) chart.append(drawing("path", { class: "track", d: `M${found.map((point) => point.map((each) => each.toFixed(1)).join(" ")).join("L")}` }));
  if (found.length) chart.append(drawing("circle", { class: "point", cx: found[found.length - 1][0], cy: found[found.length - 1][1], r: 2 }));
  return chart;
}

// One number for each checkpoint, as a line.
function lineChart(title, values, labels, second = false) {
  const [wide, high] = [340, 70];
  const known = values.filter((value) => typeof value === "number");
  const kind = second ? " second" : "";
  const chart = drawing("svg", { class: "chart", viewBox: `-4 -8 ${wide + 8} ${high + 28}`, role: "img", "aria-label": `${title}: ${values.map((value) => number(value)).join(", ")}` });
  const found = points(values, wide, high);
  chart.append(drawing("path", { class: "axis", d: `M0 ${high + 6}H${wide}` }));
  if (found.length > 1) chart.append(drawing("path", { class: `track${kind}`, d: `M${found.map((point) => point.map((each) => each.toFixed(1)).join(" ")).join("L")}` }));
  for (const [x, y] of found) chart.append(drawing("circle", { class: `point${kind}`, cx: x, cy: y, r: 3 }));
  chart.append(
    drawing("text", { x: 0, y: high + 20, text: labels[0] }),
    drawing("text", { x: wide, y: high + 20, "text-anchor": "end", text: labels[labels.length - 1] }),
  );
  const range = known.length ? `${number(Math.min(...known))} to ${number(Math.max(...known))}` : "not known";
  return element("div", {}, element("h3", { text: `${title}: ${range}` }), chart);
}
