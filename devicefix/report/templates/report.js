"use strict";

// The filter is part of the address, so that charts can link to it: `#rule=DF101&safety=left`.
const form = document.getElementById("filter");
const files = Array.from(document.querySelectorAll("details.file"), (view) => ({
  view,
  items: Array.from(view.querySelectorAll("li")),
}));
const total = files.reduce((sum, file) => sum + file.items.length, 0);
const PRINTED = 300; // print the code of up to this many findings; of more, only the list
const UNFOLDED = 100; // open files that a link shows until there are this many findings
const FEW = 25; // open all files if there are no more findings than this
const HIDDEN = /([\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs})/u; // invisible characters, and those that change the direction of text

function element(name, classes = "", ...content) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.append(...content);
  return made;
}

function visible(text) {
  return text.split(HIDDEN).map((piece, at) => {
    if (at % 2 === 0 || piece === "\t") return piece;
    const code = piece.codePointAt(0).toString(16);
    const escape = code.length < 3 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`;
    return element("span", "escape", escape);
  });
}

function line(number, parts, kind, mark) {
  const cell = element("td", number || parts.some(Boolean) ? kind : "blank");
  if (number) cell.dataset.line = number;
  const code = element("code");
  parts.forEach((part, at) => {
    const pieces = visible(part);
    if (at % 2 && part) code.append(element(mark, "", ...pieces));
    else code.append(...pieces);
  });
  cell.append(code);
  return cell;
}

function cells(row, wide) {
  if (row.length === 1) {
    const gap = element("td", "gap", `⋯ ${row[0]} more line${row[0] === 1 ? "" : "s"}`);
    gap.colSpan = wide;
    return [gap];
  }
  if (row.length === 2) return [line(row[0], row[1], "same", "mark")];
  if (row.length === 3) return [line(row[0], row[2], "same", "mark"), line(row[1], row[2], "same twice", "mark")];
  return [line(row[0], row[1], "gone", "del"), line(row[2], row[3], "made", "ins")];
}

function table(rows) {
  const wide = rows.some((row) => row.length > 2) ? 2 : 1;
  const made = element("table", wide === 2 ? "code beside" : "code");
  const titles = wide === 2 ? ["Before", "After"] : ["Code"];
  made.append(element("thead", "", element("tr", "", ...titles.map((title) => element("th", "", title)))));
  made.append(element("tbody", "", ...rows.map((row) => element("tr", "", ...cells(row, wide)))));
  return made;
}

function data(file) {
  file.data ??= JSON.parse(file.view.querySelector("script").textContent);
  return file.data;
}

function build(file) {
  if (file.built) return;
  file.built = true;
  const [definitions, ties] = data(file);
  ties.forEach((rows, at) => rows.length && file.items[at].append(table(rows)));
  const added = file.view.querySelector(".definitions");
  if (added) {
    const made = element("table", "code");
    for (const row of definitions) {
      made.append(element("tr", "", row.length === 4 ? line(0, row[3], "made", "ins") : line(row[0], row[2], "same")));
    }
    added.append(element("p", "", "Added once, for all fixes below:"), made);
  }
}

// The searched text: the path, the description of the finding, and its code without the context.
function searched(file) {
  file.texts ??= file.items.map((item, at) => {
    const own = data(file)[1][at].filter((row) => row.length === 4 || (row.length === 2 && row[1].length > 1));
    const code = own.map((row) => row.filter(Array.isArray).map((parts) => parts.join("")).join("\n"));
    return [file.view.querySelector(".path").textContent, item.querySelector("p").textContent, ...code]
      .join("\n").toLowerCase();
  });
  return file.texts;
}

function wanted() {
  const chosen = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  for (const field of form.elements) {
    if (!field.name) continue;
    field.value = chosen.get(field.name) ?? "";
    if (field.value === "" && chosen.get(field.name)) field.selectedIndex = -1; // no option has this value
  }
  return Object.fromEntries([...chosen].filter(([, value]) => value));
}

function filter() {
  const { text = "", package: folder, owner, ...exact } = wanted();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  let open = 0;
  for (const file of files) {
    const { package: own, owners } = file.view.dataset;
    const inside = (!folder || own === folder) && (!owner || owners?.split(" ").includes(owner));
    const texts = inside && words.length ? searched(file) : [];
    let some = 0;
    file.items.forEach((item, at) => {
      const fits = inside
        && Object.entries(exact).every(([name, value]) => item.dataset[name] === value)
        && words.every((word) => texts[at].includes(word));
      item.hidden = !fits;
      some += fits;
    });
    file.view.hidden = !some;
    left += some;
    open += some > 0;
  }
  const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
  document.getElementById("shown").textContent =
    `${count(left, "finding")} of ${total.toLocaleString("en")}, in ${count(open, "file")}`;
  document.getElementById("nothing").hidden = left > 0;
  form.classList.toggle("active", left < total);
}

// Open the files that a link shows, as far as they are few enough to read.
function unfold() {
  let left = UNFOLDED;
  for (const { view, items } of files) {
    if (view.hidden) continue;
    if (left <= 0) break;
    view.open = true;
    left -= items.filter((item) => !item.hidden).length;
  }
}

function go() {
  const name = location.hash.slice(1);
  if (name.includes("=")) {
    filter();
    unfold();
    document.getElementById("findings").scrollIntoView();
    return;
  }
  let target = document.getElementById(name);
  if (!target) {
    filter();
    return;
  }
  const view = target.closest("details");
  const file = files.find((each) => each.view === view);
  if (file) {
    if (view.hidden || target.hidden) filter();
    view.open = true;
    build(file);
    target.scrollIntoView({ block: target === view ? "start" : "center" });
    view.querySelector("summary").focus({ preventScroll: true });
  }
}

function choose() {
  const chosen = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", `#${chosen.size ? chosen : "findings"}`);
  filter();
}

function openAll(open) {
  for (const { view } of files) if (!view.hidden) view.open = open;
}

if (form) {
  let waiting;
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(choose, event.target.type === "search" ? 120 : 0);
  });
  form.addEventListener("reset", () => setTimeout(choose));
  document.getElementById("open").addEventListener("click", () => openAll(true));
  document.getElementById("close").addEventListener("click", () => openAll(false));
  for (const file of files) file.view.addEventListener("toggle", () => file.view.open && !printing && build(file));
  window.addEventListener("hashchange", go);
  filter();
  if (total <= FEW) openAll(true);
  if (location.hash) go();
}

let opened = [];
let printing = false;
window.addEventListener("beforeprint", () => {
  const shown = files.filter(({ view }) => !view.hidden);
  const many = shown.reduce((sum, { items }) => sum + items.filter((item) => !item.hidden).length, 0);
  if (many <= PRINTED) shown.forEach(build);
  const note = document.getElementById("printed");
  if (note) note.hidden = many <= PRINTED;
  printing = true; // opening a file for printing must not build its code
  opened = Array.from(document.querySelectorAll("details:not([open], [hidden])"));
  for (const view of opened) view.open = true;
});
window.addEventListener("afterprint", () => {
  for (const view of opened) view.open = false;
  printing = false;
});

const theme = document.getElementById("theme");
const KEPT = "devicefix-report-colours";
function paint() {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
}
theme.parentElement.hidden = false;
try {
  theme.value = localStorage.getItem(KEPT) ?? "";
} catch {
  // some browsers have no storage for files opened from disk
}
paint();
theme.addEventListener("change", () => {
  paint();
  try {
    localStorage.setItem(KEPT, theme.value);
  } catch {
    // as above
  }
});
