// Tables that readers sort and search, and tabs. Without this script all rows and all panels are visible.
(() => {
  "use strict";

  const valueOf = (cell) => {
    const given = cell.dataset.value;
    return given === undefined ? cell.textContent.trim().toLowerCase() : Number(given);
  };

  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return Number.isNaN(a) ? 1 : Number.isNaN(b) ? -1 : a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };

  const makeSortable = (table) => {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
        rows.sort((one, other) => (rising ? 1 : -1) * compare(one[0], other[0]));
        body.append(...rows.map(([, row]) => row));
      });
    });
  };

  const makeSearchable = (region, table) => {
    const box = document.createElement("p");
    const input = document.createElement("input");
    const count = document.createElement("span");
    box.className = "search";
    input.type = "search";
    input.placeholder = "Search";
    input.setAttribute("aria-label", "Search the table");
    count.setAttribute("aria-live", "polite");
    box.append(input, count);
    region.before(box);
    const rows = [...table.tBodies[0].rows];
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
  };

  for (const region of document.querySelectorAll(".table.interactive")) {
    const table = region.querySelector("table");
    makeSortable(table);
    makeSearchable(region, table);
  }

  for (const tabs of document.querySelectorAll(".tabs")) {
    const buttons = [...tabs.querySelectorAll(":scope > [role=tablist] > [role=tab]")];
    const panels = [...tabs.querySelectorAll(":scope > [role=tabpanel]")];
    const choose = (number) => {
      buttons.forEach((button, k) => {
        button.setAttribute("aria-selected", String(k === number));
        button.tabIndex = k === number ? 0 : -1;
      });
      panels.forEach((panel, k) => { panel.hidden = k !== number; });
    };
    buttons.forEach((button, k) => {
      button.addEventListener("click", () => choose(k));
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step === undefined) return;
        const next = (k + step + buttons.length) % buttons.length;
        choose(next);
        buttons[next].focus();
      });
    });
    choose(0);
  }
})();
