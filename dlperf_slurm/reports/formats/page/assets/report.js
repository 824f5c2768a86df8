"use strict";
// Sorting and filtering of the tables, which are whole without it.

const collator = new Intl.Collator("en", { numeric: true });

// Without its footnotes' numbers, which would be digits of its last word.
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

for (const heading of document.querySelectorAll(".sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sortTable(heading.closest("table"), heading));
  heading.append(button);
}

const filter = document.getElementById("filter");
const result = document.getElementById("filter-result");
const rows = [...document.querySelectorAll(".sortable tbody tr")];

// The title of a table has what all its rows share: a model, a precision, a batch size.
function sayAll(row) {
  const title = row.closest("section").querySelector("h2").textContent;
  return [title, ...[...row.cells].map(textOf)].join("\n").toLowerCase();
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
  let shown = 0;
  for (const row of rows) {
    const text = sayAll(row);
    row.hidden = !words.every((word) => hasWord(text, word));
    shown += row.hidden ? 0 : 1;
  }
  result.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
}

filter.addEventListener("input", filterRows);
filter.closest(".filter").hidden = rows.length < 2;

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
