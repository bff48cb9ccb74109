// Puts the page together.

const THEME = "milepost-report-theme";

function remembered() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null; // a browser may keep nothing for pages from a disk
  }
}

function themed() {
  const root = document.documentElement;
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.replaceChildren(isDark() ? "☀" : "☾", element("span", { class: "wide-only", text: isDark() ? " Light" : " Dark" }));
  };
  const kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem(THEME, root.dataset.theme);
    } catch {
      // the choice holds for this page
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}

function firstOf(model) {
  let found = -1;
  for (let place = 0; place < model.count; place += 1) {
    if (model.isAlarming(place)) return place;
    if (model.role(model.rowOf[place]) === "r") continue;
    const [better, best] = [place, found].map((each) => (each < 0 ? -1 : Number(model.isMeasured(each)) * 2 ** 52 + model.data.bytes[each]));
    if (better > best) found = place;
  }
  return found;
}

async function main() {
  themed();
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old: it cannot unpack the data (DecompressionStream)");
  const model = new Model(await load());
  const views = [];
  const panel = new TensorPanel(model);
  const state = {
    chosen: -1,
    show(place, follows) {
      state.chosen = place;
      panel.show(place);
      for (const view of views) view.choose(place, follows);
    },
    select(place, follows) {
      state.show(place, follows);
      panel.open();
    },
  };
  overview(model, state);
  if (model.data.checkpoints.length > 1) views.push(new Changes(model, state));
  new Treemap(model, state).draw();
  views.push(new ObjectTree(model, state), new TensorTable(model, state));
  const picture = byId("picture");
  picture.hidden = !picture.querySelector("svg");
  picture.open = model.data.outline.objects <= 40 && innerWidth > 640;
  // beside the lists is room for one tensor: the first that something is wrong with, or else the largest
  const first = firstOf(model);
  if (first >= 0) state.show(first, false);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") panel.close();
    const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      byId("tensor-search").focus();
    }
  });
  byId("footer").textContent = "Made by milepost report. This page needs no network and sends nothing. The key / goes to the search of tensors.";
  document.body.dataset.ready = "yes";
}

main().catch((error) => {
  byId("notices").append(element("div", { class: "notice", text: `The page cannot be shown: ${error.message}` }));
  document.body.dataset.ready = "failed";
});
