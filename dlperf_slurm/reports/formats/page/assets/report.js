"use strict";
// Sorting and filtering of the tables, which are complete without this script.

const collator = new Intl.Collator("en", { numeric: true });

// Without the numbers of footnotes, which would look like digits of the cell's last word.
function textOf(cell) {
  return cell.dataset.text ?? cell.textContent.trim();
}

function keyOf(cell) {
  return cell.dataset.value ?? textOf(cell);
}

// Cells without a figure come last, in either direction.
function compareCells(a, b, direction) {
  const [left, right] = [keyOf(a), keyOf(b)];
  if (left === "" || right === "") return (left === "") - (right === "");
  if ("value" in a.dataset && "value" in b.dataset) return direction * (Number(left) - Number(right));
  return direction * collator.compare(left, right);
}

function sortTable(table, heading) {
  const isAscending = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) =>
    compareCells(a.cells[heading.cellIndex], b.cells[heading.cellIndex], isAscending ? 1 : -1));
  body.append(...rows);
}

for (const heading of document.querySelectorAll(".sortable thead th:not(.trend)")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sortTable(heading.closest("table"), heading));
  heading.append(button);
}

const filter = document.getElementById("filter");
const result = document.getElementById("filter-result");
const rows = [...document.querySelectorAll(".sortable tbody tr")];
const summaryRows = rows.filter((row) => row.closest(".overview"));

// A filter also finds words of the table's title, which has what all rows share, such as the model.
// In an overview it finds words of the headings too, which are the topologies.
function sayAll(row) {
  const title = row.closest(".sortable").querySelector("h2, h3").textContent;
  const headings = row.closest(".overview") ? [...row.closest("table").tHead.rows[0].cells] : [];
  return [title, ...[...headings, ...row.cells].map(textOf)].join("\n").toLowerCase();
}

// A word is looked for where words begin: "amp" is not in "example".
function hasWord(text, word) {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (at === 0 || !/[a-z0-9]/.test(text[at - 1]) || !/[a-z0-9]/.test(word[0])) return true;
  }
  return false;
}

function filterRows() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const text = sayAll(row);
    row.hidden = !words.every((word) => hasWord(text, word));
  }
  // a folded table without a row is not worth unfolding
  for (const fold of document.querySelectorAll("details.sortable")) {
    fold.hidden = [...fold.querySelectorAll("tbody tr")].every((row) => row.hidden);
  }
  const shown = summaryRows.filter((row) => !row.hidden).length;
  result.textContent = words.length ? `${shown} of ${summaryRows.length} rows` : "";
  document.querySelectorAll(".overview").forEach(showSeries);
}

filter.addEventListener("input", filterRows);
filter.closest(".filter").hidden = rows.length < 2;

// A series is drawn where its row is shown and neither its label nor its kind is switched off.
function showSeries(section) {
  const off = [...section.querySelectorAll('.switch[aria-pressed="false"]')]
    .map((button) => `${button.dataset.group} ${button.dataset.index}`);
  for (const series of section.querySelectorAll(".series")) {
    const { label, kind } = series.dataset;
    const row = section.querySelector(`tr[data-label="${label}"][data-kind="${kind}"]`);
    const isOff = off.includes(`label ${label}`) || off.includes(`kind ${kind}`) || row.hidden;
    series.classList.toggle("off", isOff);
  }
}

for (const key of document.querySelectorAll(".switch")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "switch";
  Object.assign(button.dataset, key.dataset);
  button.setAttribute("aria-pressed", "true");
  button.title = "show or hide";
  button.append(...key.childNodes);
  button.addEventListener("click", () => {
    const isPressed = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!isPressed));
    showSeries(button.closest(".overview"));
  });
  key.replaceWith(button);
}

// Pointing at a row of the overview dims the series of all other rows.
function dimOthers(row, isDimmed) {
  for (const series of row.closest(".overview").querySelectorAll(".series")) {
    const isOwn = series.dataset.label === row.dataset.label && series.dataset.kind === row.dataset.kind;
    series.classList.toggle("dim", isDimmed && !isOwn);
  }
}

for (const row of summaryRows) {
  row.addEventListener("pointerenter", () => dimOthers(row, true));
  row.addEventListener("pointerleave", () => dimOthers(row, false));
}

const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);

function showTip(mark) {
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const box = mark.getBoundingClientRect();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const left = Math.max(8, Math.min(room, box.left + box.width / 2 - tip.offsetWidth / 2));
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${box.top + scrollY - tip.offsetHeight - 8}px`;
}

for (const mark of document.querySelectorAll("[data-tip]")) {
  mark.addEventListener("pointerenter", () => showTip(mark));
  mark.addEventListener("pointerleave", () => { tip.hidden = true; });
}

for (const command of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(command.querySelector("code"));
    try {
      await navigator.clipboard.writeText(command.querySelector("code").textContent);
    } catch {
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  });
  command.append(button);
}

// Unfold the sections that contain the target of a link.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
}
addEventListener("hashchange", unfold);
unfold();

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
