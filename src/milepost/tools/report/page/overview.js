// What the checkpoint is, in a few numbers, and what is wrong with it.

function overview(model, state) {
  const { data } = model;
  const last = data.checkpoints[data.checkpoints.length - 1];
  byId("name").textContent = shortPath(last.path);
  const files = last.files ? ` in ${plural(last.files, "data file")}` : "";
  byId("about").textContent = `${last.kind} · ${last.path}${files}`;

  let elements = 0;
  const alarming = [];
  let zero = 0;
  for (let place = 0; place < model.count; place += 1) {
    elements += model.elements(place);
    zero += Number(model.isZero(place));
    if (model.isAlarming(place)) alarming.push(place);
  }
  const bad = alarming.filter((place) => model.hasBadNumbers(place));
  const tiles = [
    [whole(last.tensors), last.tensors === 1 ? "tensor" : "tensors"],
    [bytes(last.bytes), last.records ? "of values and records" : "of values"],
    [short(elements), "elements"],
  ];
  if (data.outline.objects !== null) tiles.push([whole(data.outline.objects), "objects in the graph"]);
  if (data.values) {
    const damaged = Object.keys(data.problems).length;
    if (damaged) tiles.push([whole(damaged), "damaged", true]);
    tiles.push([whole(bad.length), "with NaN or infinity", bad.length > 0]);
    tiles.push([whole(zero), "all zeros"]);
  }
  byId("tiles").replaceChildren(
    ...tiles.map(([value, text, alarm]) =>
      element("div", { class: alarm ? "tile alarm" : "tile" }, element("b", { text: value }), element("span", { class: "muted", text })),
    ),
  );
  notices(model, state, last, alarming);
  types(last);
  if (data.checkpoints.length > 1) checkpoints(data.checkpoints);
  const saved = [["Metrics", last.metrics], ["Metadata", last.metadata], ["Files", last.saved_files], ["Left out when it was saved", last.left_out]].filter(([, text]) => text !== null);
  if (saved.length) {
    byId("saved-with").append(element("dl", {}, ...saved.flatMap(([name, text]) => [element("dt", { text: name }), element("dd", { text })])));
  }
}

function notices(model, state, last, alarming) {
  const { data } = model;
  const found = [];
  for (const place of alarming.slice(0, 5)) {
    const problem = data.problems[place];
    const counted = [[model.statistic("nan", place), "NaN"], [model.statistic("infinite", place), "infinite"]]
      .filter(([count]) => count)
      .map(([count, text]) => `${whole(count)} ${text}`)
      .join(", ");
    // the tensor itself shows all lines
    const text = problem?.split("\n")[0] ?? `${counted} of ${plural(model.elements(place), "value")}`;
    found.push(
      element("div", { class: "notice" }, element("button", { type: "button", click: () => state.select(place, true), text: model.name(place) }), ` ${text}`),
    );
  }
  if (alarming.length > 5) found.push(element("div", { class: "notice", text: `and ${plural(alarming.length - 5, "more tensor")} like these; the list of tensors shows them` }));
  if (!data.values) found.push(element("div", { class: "notice mild", text: "No values were read: there are names, types and sizes only." }));
  if (last.unread_count) {
    const names = last.unread.slice(0, 8).map(([key, kind]) => `${key || "(the whole file)"} (${kind})`);
    const more = last.unread_count > 8 ? ", ..." : "";
    found.push(element("div", { class: "notice mild", text: `${plural(last.unread_count, "object")} not read, or in part, since the rest would run code of the file: ${names.join(", ")}${more}` }));
  }
  if (data.left_out.tensors) {
    found.push(element("div", { class: "notice mild", text: `${plural(data.left_out.tensors, "small tensor")} of ${bytes(data.left_out.bytes)} together are not listed, so that this page stays small.` }));
  }
  byId("notices").replaceChildren(...found);
}

function types(last) {
  const listed = [...Object.entries(last.types), ["object graph and metadata", last.records]].filter(([, size]) => size).sort((a, b) => b[1] - a[1]);
  if (!listed.length) return;
  const shown = listed.slice(0, 4);
  const rest = listed.slice(4);
  if (rest.length) shown.push([plural(rest.length, "other type"), rest.reduce((sum, [, size]) => sum + size, 0)]);
  const stripe = element("div", { class: "stripe", role: "img", "aria-label": `Bytes by element type: ${shown.map(([name, size]) => `${name} ${bytes(size)}`).join(", ")}` });
  shown.forEach(([, size], at) => {
    const part = element("div", { class: `type-${at}` });
    part.style.flexGrow = String(size / last.bytes);
    stripe.append(part);
  });
  const legend = element("div", { class: "legend" }, ...shown.map(([name, size], at) => element("span", { class: `type-${at}`, text: `${name} ${bytes(size)} (${percent(size / last.bytes)})` })));
  byId("types").replaceChildren(stripe, legend);
}

function checkpoints(listed) {
  const hasMetrics = listed.some((each) => each.metrics !== null);
  const heads = ["checkpoint", "tensors", "bytes", ...(hasMetrics ? ["metrics"] : [])];
  const rows = listed.map((each) =>
    element("tr", {}, element("td", { text: shortPath(each.path), title: each.path }), element("td", { class: "wide-only", text: whole(each.tensors) }), element("td", { text: bytes(each.bytes) }), hasMetrics ? element("td", { class: "text", text: each.metrics ?? "" }) : null),
  );
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { text, scope: "col", class: { tensors: "wide-only", metrics: "text" }[text] })))), element("tbody", {}, ...rows));
  byId("checkpoints").replaceChildren(element("div", { class: "card scroll" }, table));
}

function shortPath(path) {
  return path.split(/[\\/]/).filter(Boolean).slice(-2).join("/");
}

function short(count) {
  if (count < 1e5) return whole(count);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= size) return `${(count / size).toPrecision(3)} ${unit}`;
  }
  return String(count);
}
