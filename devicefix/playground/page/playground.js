// The page sends code to the server that it comes from, with the token in its address, and shows the answer.
const EXAMPLE = `import apex.amp
import torch
from torch import nn

model = nn.Linear(4, 2).cuda()
model.load_state_dict(torch.load("model.pt"))

x = torch.randn(8, 4, device="cuda")
print(model(x).sum().item())
gpu = torch.cuda.current_device()
scaler = apex.amp.initialize(model)
`;
const PAUSE = 300; // milliseconds after a key before the code is checked

const find = (id) => document.getElementById(id);
const [before, after, error, status] = ["before", "after", "error", "status"].map(find);
let file; // { name, notebook, text, crlf }
let largest = Infinity;
let starts = new Map(); // of each cell of a notebook in the text that is shown
let result; // the last answer
let pending; // the request under way
let timer;

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...content);
  return made;
}

function linked(text, url) {
  if (!url) return element("span", "", text);
  const made = element("a", "", text);
  Object.assign(made, { href: url, target: "_blank", rel: "noopener noreferrer" });
  return made;
}

// The text in backticks of a message is code.
const coded = (text) =>
  text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? element("code", "", part) : part));

function count(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

function fail(message) {
  result = undefined;
  error.textContent = message;
  error.hidden = false;
  status.textContent = "";
  after.replaceChildren();
  find("findings").replaceChildren();
  find("copy").disabled = find("save").disabled = true;
}

function open(name, text) {
  const notebook = name.endsWith(".ipynb");
  file = { name, notebook, text, crlf: /\r\n/.test(text) && !/[^\r]\n/.test(text) };
  starts = new Map();
  before.readOnly = notebook;
  before.value = notebook ? "" : text;
  find("name").textContent = notebook ? `${name} (read-only)` : name;
  check();
}

async function read(given) {
  if (!/\.(ipynb|pyi?)$/.test(given.name)) return fail(`${given.name}: only .py, .pyi and .ipynb files can be checked here.`);
  if (given.size > largest) return fail(`${given.name} is too large; use \`devicefix rewrite\`.`);
  try {
    // The server gets the text as it is, a byte order mark included.
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await given.arrayBuffer());
    open(given.name, text);
  } catch {
    fail(`${given.name} is not UTF-8; use \`devicefix rewrite\`.`);
  }
}

async function check() {
  clearTimeout(timer);
  pending?.abort();
  const mine = (pending = new AbortController());
  status.textContent = "Checking…";
  const body = JSON.stringify({
    source: file.text,
    notebook: file.notebook,
    target: find("target").value,
    unsafe: find("unsafe").checked,
  });
  if (new Blob([body]).size > largest) return fail("There is too much code; use `devicefix rewrite`.");
  try {
    const headers = { Authorization: `Bearer ${location.hash.slice(1)}` };
    const response = await fetch("/check", { method: "POST", headers, body, signal: mine.signal });
    const answer = await response.json();
    if (pending !== mine) return;
    if (answer.error) fail(`Error: ${answer.error}`);
    else show(answer);
  } catch {
    if (pending === mine) fail("The server does not answer. Is `devicefix playground` still running?");
  }
}

function show(answer) {
  result = answer;
  error.hidden = true;
  const { findings, fixed, remaining } = answer;
  status.textContent = findings.length
    ? `${count(findings.length, "finding")}: ${fixed} fixed, ${remaining} left`
    : "Nothing found";
  if (file.notebook) showCells(answer.before);
  showAfter(answer.after);
  find("findings").replaceChildren(...findings.map(row));
  find("copy").disabled = file.notebook;
  find("save").disabled = false;
}

function showCells(cells) {
  let text = "";
  starts = new Map();
  for (const { cell, lines } of cells) {
    if (cell !== null) text += `# cell ${cell}\n`;
    starts.set(cell, text.length);
    text += `${lines.join("\n")}\n\n`;
  }
  before.value = text;
}

function showAfter(cells) {
  const rows = [];
  for (const { cell, lines, changed } of cells) {
    const made = new Set(changed);
    if (cell !== null) rows.push(element("span", "cell", `# cell ${cell}`));
    lines.forEach((line, at) => {
      if (at === lines.length - 1 && !line && cell === null) return; // after the last line end
      const row = element("span", made.has(at + 1) ? "made" : "", line || " ");
      row.dataset.line = at + 1;
      rows.push(row);
    });
  }
  after.replaceChildren(...rows);
}

const MARKS = { safe: "safe fix", unsafe: "unsafe fix" };

function row({ code, name, url, message, cell, line, column, fix }) {
  const place = element("button", "place", `${cell === null ? "" : `cell ${cell}, `}line ${line}`);
  place.type = "button";
  place.addEventListener("click", () => select(cell, line, column));
  const rule = linked(code, url);
  rule.title = name;
  const mark = element("span", `mark ${fix ?? "left"}`, MARKS[fix] ?? "no fix");
  return element("li", "", place, rule, mark, element("span", "message", ...coded(message)));
}

// Select the rest of the line in which a finding starts, and scroll to it.
function select(cell, line, column) {
  const text = before.value;
  let start = starts.get(cell) ?? 0;
  for (let number = 1; number < line; number++) start = text.indexOf("\n", start) + 1;
  const end = text.indexOf("\n", start);
  before.focus();
  before.setSelectionRange(start + column - 1, end < 0 ? text.length : end);
  const height = parseFloat(getComputedStyle(before).lineHeight);
  before.scrollTop = Math.max(0, (text.slice(0, start).split("\n").length - 4) * height);
}

function showRule({ code, name, summary, url, target }) {
  const only = target ? ` (with target ${target})` : "";
  return element("li", "", linked(code, url), ` ${name}: `, ...coded(summary), only);
}

before.addEventListener("input", () => {
  file.text = file.crlf ? before.value.replaceAll("\n", "\r\n") : before.value;
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
});
find("settings").addEventListener("submit", (event) => event.preventDefault());
find("target").addEventListener("change", check);
find("unsafe").addEventListener("change", check);
find("file").addEventListener("change", (event) => {
  const [given] = event.target.files;
  if (given) read(given);
});
find("clear").addEventListener("click", () => {
  find("file").value = "";
  open("", "");
  before.focus();
});
find("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(result.source);
    status.textContent = "Copied";
  } catch {
    status.textContent = "The browser does not allow copying; use Download";
  }
});
find("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([result.source]));
  link.download = file.name || "rewritten.py";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
});
for (const kind of ["dragover", "dragleave", "drop"]) {
  addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return; // text is dropped into the box
    event.preventDefault();
    document.body.classList.toggle("dropping", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) read(event.dataTransfer.files[0]);
  });
}

open("", EXAMPLE);
const about = await (await fetch("/about.json")).json();
largest = about.largest;
find("version").textContent = about.version;
find("rules").replaceChildren(...about.rules.map(showRule));
