"use strict";
// Draws the plots of a page as SVG, one object each. Data enters the document only as text content and as coordinates.
// Colours are in the style sheet, so light, dark and print need no redrawing.

(() => {
  const COLOURS = 7;
  const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
  const MOST_MARKERS = 40; // per series; longer ones are drawn without markers
  const MOST_ITEMS = 30; // shown initially
  const FONT = 12;
  const SVG = "http://www.w3.org/2000/svg"; // only a namespace, never fetched

  // Elements

  function add(parent, name, attributes = {}, text = null) {
    const isDrawing = name === "svg" || parent instanceof SVGElement;
    const made = isDrawing ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    parent.append(made);
    return made;
  }

  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${FONT}px ${getComputedStyle(document.body).fontFamily}`;
  const textWidth = (text) => pen.measureText(text).width;
  const widest = (texts, least) => texts.reduce((width, text) => Math.max(width, textWidth(text)), least);

  function shorten(text, width) {
    if (textWidth(text) <= width) return text;
    const letters = Array.from(text);
    let kept = letters.length;
    while (kept > 1 && textWidth(`${letters.slice(0, kept).join("")}…`) > width) kept -= 1;
    return `${letters.slice(0, kept).join("")}…`;
  }

  // Numbers

  const isNumber = (value) => value !== null && value !== undefined;
  const superscript = (whole) => String(whole).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));

  function grouped(value, decimals, fewest = decimals) {
    const options = { minimumFractionDigits: fewest, maximumFractionDigits: decimals };
    return value.toLocaleString("en-GB", options).replace("-", "−");
  }

  function scientific(value) {
    const [digits, power] = value.toExponential(3).split("e");
    const factor = Number(digits);
    const ten = `10${superscript(Number(power))}`;
    return factor === 1 ? ten : `${String(factor).replace("-", "−")}×${ten}`;
  }

  function shown(value, digits = 5) {
    if (!isNumber(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e9)) return scientific(value);
    const decimals = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return grouped(value, Math.min(decimals, 8), 0);
  }

  function shownWithInterval(series, i) {
    const interval = series.low && isNumber(series.low[i]) && isNumber(series.high[i]);
    return shown(series.y[i]) + (interval ? ` (${shown(series.low[i], 3)} – ${shown(series.high[i], 3)})` : "");
  }

  // Scales

  function linearTicks(low, high, most, finest = 0) {
    const least = Math.max(finest, (high - low) / most);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least * (1 - 1e-9));
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k <= high / step + 1e-9; k += 1) ticks.push(k * step + 0); // no -0
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const wide = Math.max(Math.abs(low), Math.abs(high)) >= 1e7 || decimals > 6;
    return ticks.map((value) => [value, wide ? shown(Number(value.toPrecision(6))) : grouped(value, decimals)]);
  }

  function logTicks(low, high, most) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const within = (factors, stride) => {
      const ticks = [];
      for (let power = Math.ceil(first / stride) * stride; power <= last; power += stride) {
        for (const factor of factors) ticks.push(factor * 10 ** power);
      }
      return ticks.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
    };
    let ticks = [[1, 2, 5], [1, 3], [1]].map((factors) => within(factors, 1)).find((found) => found.length <= most);
    for (let stride = 2; !ticks; stride += 1) {
      const found = within([1], stride);
      if (found.length <= most) ticks = found;
    }
    if (ticks.length < 2) return linearTicks(low, high, most).filter(([value]) => value > 0);
    const plain = ticks[0] >= 1e-4 && ticks.at(-1) < 1e6;
    return ticks.map((value) => [value, plain ? shown(value) : scientific(value)]);
  }

  /** Maps values to pixels between `start` and `end`. */
  class Scale {
    constructor(values, { log = false, withZero = false } = {}) {
      this.log = log;
      this.finest = values.every((value) => !isNumber(value) || Number.isInteger(value)) ? 1 : 0; // step of ticks
      let low = Infinity, high = -Infinity;
      for (const value of values) {
        if (!this.holds(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
      if (low > high) [low, high] = log ? [1, 10] : [0, 1];
      if (withZero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
      if (low === high) {
        const reach = Math.abs(low) / 2 || 1;
        [low, high] = log ? [low / 2, high * 2] : [low - reach, high + reach];
      }
      const [from, to] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
      const room = 0.04 * (to - from);
      this.from = withZero && low === 0 ? from : from - room;
      this.to = withZero && high === 0 ? to : to + room;
    }

    between(start, end) {
      [this.start, this.end] = [start, end];
      return this;
    }

    holds(value) { return isNumber(value) && !(this.log && value <= 0); }

    /** Values that a logarithmic scale cannot show are placed beyond its low end. */
    at(value) {
      const place = this.log ? (value > 0 ? Math.log10(value) : -Infinity) : value;
      const share = (place - this.from) / (this.to - this.from);
      return this.start + Math.max(-1, share) * (this.end - this.start);
    }

    ticks(most) {
      const wanted = Math.max(2, most);
      if (this.log) return logTicks(10 ** this.from, 10 ** this.to, wanted);
      return linearTicks(this.from, this.to, wanted, this.finest);
    }

    /** As many ticks as fit next to each other. */
    ticksAcross() {
      const room = Math.abs(this.end - this.start);
      for (let most = 10; most > 2; most -= 1) {
        const ticks = this.ticks(most);
        if (ticks.length * (widest(ticks.map(([, text]) => text), 0) + 16) <= room) return ticks;
      }
      return this.ticks(2);
    }
  }

  // Marks of a series: colour, dash and shape all distinguish it

  const SHAPES = [
    (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
    (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    (x, y, r) => `M${x},${y - 1.3 * r}l${1.3 * r},${2.2 * r}h${-2.6 * r}z`,
    (x, y, r) => `M${x},${y - 1.4 * r}l${1.4 * r},${1.4 * r}l${-1.4 * r},${1.4 * r}l${-1.4 * r},${-1.4 * r}z`,
    (x, y, r) => `M${x},${y + 1.3 * r}l${1.3 * r},${-2.2 * r}h${-2.6 * r}z`,
  ];
  const marker = (number, x, y, r = 3.5) => SHAPES[number % SHAPES.length](round(x), round(y), r);
  const colour = (number) => `s${number % COLOURS}`;
  const dash = (number) => ({ "stroke-dasharray": DASHES[number % DASHES.length] || "none" });
  const round = (pixels) => Math.round(pixels * 10) / 10;

  function addSwatch(parent, number, kind) {
    const attributes = { class: `swatch ${colour(number)}`, viewBox: "0 0 28 12", "aria-hidden": "true" };
    const swatch = add(parent, "svg", attributes);
    if (kind === "bar") add(swatch, "path", { class: "bar", d: "M4,1h20v10h-20z" });
    if (kind === "line") add(swatch, "path", { class: "line", d: "M0,6H28", ...dash(number) });
    if (kind !== "bar") add(swatch, "path", { class: "marker", d: marker(number, 14, 6) });
  }

  // Plots

  class Plot {
    constructor(figure, data) {
      Object.assign(this, { figure, data, hidden: new Set(), series: data.series || [] });
      const switches = this.logAxes();
      this.log = { x: "x" in switches && data.x.log, y: "y" in switches && data.y.log };
      this.controls = add(figure, "div", { class: "controls" });
      if (this.series.length > 1) this.series.forEach((series, number) => this.addLegend(series, number));
      for (const [name, text] of Object.entries(switches)) {
        this.addSwitch(text, this.log[name], (on) => { this.log[name] = on; });
      }
      if (data.y) add(figure, "div", { class: "axis-title y" }, data.y.title);
      const about = figure.querySelector("figcaption")?.textContent ?? (data.y ?? data.x).title;
      const label = `Plot: ${about}. Arrow keys show values.`;
      this.svg = add(figure, "svg", { role: "img", tabindex: "0", "aria-label": label });
      add(figure, "div", { class: "axis-title x" }, data.x.title);
      this.tip = add(figure, "div", { class: "tip", role: "status", hidden: "" });
      this.listen();
      new ResizeObserver(() => { if (Math.abs(figure.clientWidth - this.width) > 1) this.draw(); }).observe(figure);
      this.draw();
    }

    /** Axes that can be switched to a logarithmic scale, with the labels of their switches. */
    logAxes() { return {}; }

    addLegend(series, number) {
      const button = add(this.controls, "button", { type: "button", class: "series", "aria-pressed": "true" });
      addSwatch(button, series.style, this.swatch());
      add(button, "span", {}, series.name);
      button.addEventListener("click", () => {
        const isHidden = this.hidden.has(number);
        if (isHidden) this.hidden.delete(number); else this.hidden.add(number);
        button.setAttribute("aria-pressed", String(isHidden));
        this.draw();
      });
    }

    addSwitch(text, isOn, change) {
      const attributes = { type: "button", class: "switch", "aria-pressed": String(isOn) };
      const button = add(this.controls, "button", attributes, text);
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        change(on);
        this.draw();
      });
    }

    /** Series with their numbers. */
    visible() { return [...this.series.entries()].filter(([number]) => !this.hidden.has(number)); }

    /** Values that an axis must cover: those of the visible series, or of all if none is visible. */
    values(names, axis, count = Infinity) {
      const chosen = this.hidden.size < this.series.length ? this.visible() : [...this.series.entries()];
      const found = axis.reference ? [axis.reference.value] : [];
      for (const [, series] of chosen) {
        for (const name of names) series[name]?.forEach((value, i) => { if (i < count) found.push(value); });
      }
      return found;
    }

    draw() {
      this.width = Math.max(240, this.figure.clientWidth);
      this.right = this.width - 14;
      this.stops = null;
      this.hide();
      this.svg.replaceChildren();
      this.height = this.paint();
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    }

    addText(x, y, text, anchor, kind) {
      const attributes = { class: kind, x: round(x), y: round(y), "text-anchor": anchor, dy: "0.35em" };
      return add(this.svg, "text", attributes, text);
    }

    /** Draws grid and labels of the horizontal axis, at the top too if the plot is long. */
    paintAcross(scale, top, bottom, withTop = false) {
      const ticks = scale.ticksAcross();
      const lines = ticks.map(([value]) => `M${round(scale.at(value))},${top}V${bottom}`);
      add(this.svg, "path", { class: "grid x", d: lines.join("") });
      for (const [value, text] of ticks) {
        this.addText(scale.at(value), bottom + 13, text, "middle", "tick x halo");
        if (withTop) this.addText(scale.at(value), top - 13, text, "middle", "tick x halo");
      }
    }

    /** Draws grid and labels of the vertical axis. Returns the left edge of the plot area. */
    paintUp(scale) {
      const ticks = scale.ticks(Math.floor((scale.start - scale.end) / 40));
      const left = Math.ceil(widest(ticks.map(([, text]) => text), 16)) + 8;
      const lines = ticks.map(([value]) => `M${left},${round(scale.at(value))}H${this.right}`);
      add(this.svg, "path", { class: "grid y", d: lines.join("") });
      for (const [value, text] of ticks) this.addText(left - 6, scale.at(value), text, "end", "tick y");
      return left;
    }

    paintReferenceAcross(scale, reference, top, bottom) {
      if (!reference || !scale.holds(reference.value)) return;
      const x = round(scale.at(reference.value));
      add(this.svg, "path", { class: "reference", d: `M${x},${top}V${bottom}` });
      const isLeft = x < (scale.start + scale.end) / 2;
      this.addText(x + (isLeft ? 6 : -6), top + 8, reference.text, isLeft ? "start" : "end", "reference-text halo");
    }

    // Values at the pointer, or at the position of the arrow keys

    listen() {
      const point = (event) => {
        const box = this.svg.getBoundingClientRect();
        const ratio = this.width / box.width;
        this.show(this.nearest((event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio));
      };
      this.svg.addEventListener("pointerdown", point);
      this.svg.addEventListener("pointermove", point);
      this.svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.hide(); });
      this.svg.addEventListener("blur", () => this.hide());
      this.svg.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (event.key === "Escape") this.hide();
        if (!step) return;
        event.preventDefault();
        const last = this.allStops().length - 1;
        this.show(this.current === null ? (step > 0 ? 0 : last) : Math.min(last, Math.max(0, this.current + step)));
      });
    }

    /** Points with values, in order. Their texts are built on demand, because there can be many. */
    allStops() {
      this.stops ??= this.findStops();
      return this.stops;
    }

    nearest(x, y) {
      let best = null, least = Infinity;
      this.allStops().forEach((stop, number) => {
        const distance = Math.abs(this.data.kind === "items" ? stop.y - y : stop.x - x);
        if (distance < least) [best, least] = [number, distance];
      });
      return best;
    }

    show(number) {
      this.hide();
      const stop = number === null ? undefined : this.allStops()[number];
      if (!stop) return;
      this.current = number;
      this.highlight = add(this.svg, "g");
      if (stop.row) add(this.highlight, "rect", { class: "focus-row", ...stop.row });
      for (const y of stop.points) {
        add(this.highlight, "circle", { class: "focus", cx: round(stop.x), cy: round(y), r: 6 });
      }
      add(this.tip, "strong", {}, stop.title());
      for (const line of stop.lines) {
        const row = add(this.tip, "div");
        if (line.number !== undefined && this.series.length > 1) addSwatch(row, this.series[line.number].style, this.swatch());
        add(row, "span", {}, line.text());
      }
      this.tip.hidden = false;
      const box = this.svg.getBoundingClientRect(), around = this.figure.getBoundingClientRect();
      const ratio = box.width / this.width;
      const across = box.left - around.left + stop.x * ratio, down = box.top - around.top + stop.y * ratio;
      const [width, height] = [this.tip.offsetWidth, this.tip.offsetHeight];
      const left = across + 14 + width <= around.width ? across + 14 : across - 14 - width;
      this.tip.style.left = `${Math.max(0, left)}px`;
      this.tip.style.top = `${Math.max(0, down - height - 14)}px`;
    }

    hide() {
      this.current = null;
      this.tip.hidden = true;
      this.tip.replaceChildren();
      if (this.highlight) this.highlight.remove();
    }
  }

  const arePositive = (values) => values.some(isNumber) && values.every((value) => !isNumber(value) || value > 0);

  class LinePlot extends Plot {
    swatch() { return "line"; }

    logAxes() {
      const found = {};
      for (const name of ["x", "y"]) if (arePositive(this.values([name], {}))) found[name] = `log ${name}`;
      return found;
    }

    paint() {
      const [top, bottom] = [8, Math.round(Math.min(360, Math.max(220, this.width * 0.5)))];
      this.y = new Scale(this.values(["y", "low", "high"], this.data.y), { log: this.log.y }).between(bottom, top);
      const left = this.paintUp(this.y);
      this.x = new Scale(this.values(["x"], this.data.x), { log: this.log.x }).between(left, this.right);
      this.paintAcross(this.x, top, bottom);
      const edge = `edge-${this.figure.dataset.plot}`;
      const area = { x: left, y: top - 6, width: this.right - left + 6, height: bottom - top + 12 };
      add(add(this.svg, "clipPath", { id: edge }), "rect", area);
      const inside = add(this.svg, "g", { "clip-path": `url(#${edge})` });
      for (const [, series] of this.visible()) {
        this.paintSeries(add(inside, "g", { class: colour(series.style) }), series, series.style);
      }
      this.paintReferenceAcross(this.x, this.data.x.reference, top, bottom);
      this.paintReferenceUp(this.data.y.reference, left);
      return bottom + 24;
    }

    canShow(series, i) { return this.x.holds(series.x[i]) && this.y.holds(series.y[i]); }

    paintReferenceUp(reference, left) {
      if (!reference || !this.y.holds(reference.value)) return;
      const y = round(this.y.at(reference.value));
      add(this.svg, "path", { class: "reference", d: `M${left},${y}H${this.right}` });
      this.addText(this.right - 2, y < 30 ? y + 10 : y - 10, reference.text, "end", "reference-text halo");
    }

    paintSeries(group, series, number) {
      const place = (i, name) => `${round(this.x.at(series.x[i]))},${round(this.y.at(series[name][i]))}`;
      const runs = [[]]; // runs of points without a gap
      const known = [];
      series.x.forEach((_, i) => {
        if (!this.canShow(series, i)) {
          if (runs.at(-1).length) runs.push([]);
        } else {
          runs.at(-1).push(i);
          known.push(i);
        }
      });
      if (series.low) this.paintIntervals(group, series, runs, known, place);
      const lines = runs.filter((run) => run.length > 1).map((run) => `M${run.map((i) => place(i, "y")).join("L")}`);
      if (lines.length) add(group, "path", { class: "line", d: lines.join(""), ...dash(number) });
      const marked = known.length <= MOST_MARKERS ? known : runs.filter((run) => run.length === 1).flat();
      const marks = marked.map((i) => marker(number, this.x.at(series.x[i]), this.y.at(series.y[i])));
      if (marks.length) add(group, "path", { class: "marker", d: marks.join("") });
    }

    paintIntervals(group, series, runs, known, place) {
      const hasInterval = (i) => isNumber(series.low[i]) && isNumber(series.high[i]);
      if (this.data.bars) {
        const end = (i, name) => `M${place(i, name)}m-4,0h8`;
        const bar = (i) => `M${place(i, "low")}L${place(i, "high")}${end(i, "low")}${end(i, "high")}`;
        add(group, "path", { class: "interval", d: known.filter(hasInterval).map(bar).join("") });
        return;
      }
      const outline = (run) => {
        const [over, under] = ["high", "low"].map((name) => run.map((i) => place(i, name)));
        return `M${over.join("L")}L${under.reverse().join("L")}z`;
      };
      const outlines = runs.map((run) => run.filter(hasInterval)).filter((run) => run.length > 1).map(outline);
      if (outlines.length) add(group, "path", { class: "band", d: outlines.join("") });
    }

    findStops() {
      const byX = new Map();
      for (const [number, series] of this.visible()) {
        series.x.forEach((x, i) => {
          if (!this.canShow(series, i)) return;
          if (!byX.has(x)) byX.set(x, { value: x, x: this.x.at(x), points: [], lines: [] });
          const stop = byX.get(x);
          stop.points.push(this.y.at(series.y[i]));
          stop.lines.push({ number, text: () => `${series.name}: ${shownWithInterval(series, i)}` });
        });
      }
      for (const stop of byX.values()) {
        stop.y = Math.min(...stop.points);
        stop.title = () => `${this.data.x.title}: ${shown(stop.value)}`;
      }
      return [...byX.values()].sort((a, b) => a.value - b.value);
    }
  }

  class ItemPlot extends Plot {
    constructor(figure, data) {
      super(figure, data);
      if (data.items.length > MOST_ITEMS) {
        this.addSwitch(`all ${grouped(data.items.length, 0)}`, false, (on) => { this.showsAll = on; });
      }
    }

    swatch() { return this.data.bars ? "bar" : "dot"; }

    logAxes() { return !this.data.bars && arePositive(this.values(["y"], {})) ? { x: "log axis" } : {}; }

    paint() {
      const { items, x: axis, bars: withZero } = this.data;
      const visible = this.visible();
      const labels = this.showsAll ? items : items.slice(0, MOST_ITEMS);
      this.rowHeight = Math.max(22, 10 * visible.length + 12);
      const isLong = labels.length * this.rowHeight > 500;
      this.figure.classList.toggle("long", isLong);
      this.top = (isLong ? 26 : 4) + (axis.reference ? 18 : 0);
      const bottom = this.top + labels.length * this.rowHeight;
      this.left = Math.ceil(Math.min(0.4 * this.width, widest(labels, 20))) + 10;
      const values = this.values(["y", "low", "high"], axis, labels.length);
      this.x = new Scale(values, { log: this.log.x, withZero }).between(this.left, this.right);
      const guides = labels.map((_, row) => `M${this.left},${this.middle(row)}H${this.right}`);
      add(this.svg, "path", { class: "grid guide", d: guides.join("") });
      this.paintReferenceAcross(this.x, axis.reference, isLong ? 0 : this.top - 18, bottom); // below labels and dots
      this.paintAcross(this.x, this.top, bottom, isLong);
      labels.forEach((label, row) => {
        const text = this.addText(this.left - 8, this.middle(row), shorten(label, this.left - 10), "end", "item");
        add(text, "title", {}, label);
      });
      const known = [...labels.keys()];
      visible.forEach(([, series], place) => {
        const down = (place - (visible.length - 1) / 2) * 10;
        this.paintSeries(add(this.svg, "g", { class: colour(series.style) }), series, series.style, known, down);
      });
      return bottom + 24;
    }

    middle(row) { return this.top + (row + 0.5) * this.rowHeight; }

    paintSeries(group, series, number, rows, down) {
      const known = rows.filter((i) => this.x.holds(series.y[i]));
      const y = (i) => round(this.middle(i) + down);
      const at = (value) => round(Math.min(this.x.end + 4, Math.max(this.x.start - 4, this.x.at(value))));
      if (this.data.bars) {
        const half = this.visible().length > 1 ? 4 : 7;
        const bar = (i) => `M${at(0)},${y(i) - half}H${at(series.y[i])}v${2 * half}H${at(0)}z`;
        add(group, "path", { class: "bar", d: known.map(bar).join("") });
      }
      if (series.low) {
        const ends = known.filter((i) => isNumber(series.low[i]) && isNumber(series.high[i]));
        const lines = ends.map((i) => `M${at(series.low[i])},${y(i)}H${at(series.high[i])}`);
        add(group, "path", { class: "interval", d: lines.join("") });
      }
      if (this.data.bars) return;
      add(group, "path", { class: "marker", d: known.map((i) => marker(number, at(series.y[i]), y(i), 4)).join("") });
    }

    findStops() {
      const labels = this.showsAll ? this.data.items : this.data.items.slice(0, MOST_ITEMS);
      return labels.map((label, i) => {
        const visible = this.visible();
        const lines = visible.map(([number, series]) => {
          const name = this.series.length > 1 ? `${series.name}: ` : "";
          return { number, text: () => name + shownWithInterval(series, i) };
        });
        const first = visible.find(([, series]) => this.x.holds(series.y[i]));
        const y = this.middle(i);
        const row = { x: 0, y: y - this.rowHeight / 2, width: this.width, height: this.rowHeight };
        return { x: first ? this.x.at(first[1].y[i]) : this.left, y, row, points: [], lines, title: () => label };
      });
    }
  }

  class Histogram extends Plot {
    paint() {
      const { edges, counts } = this.data;
      const [top, bottom] = [8, Math.round(Math.min(300, Math.max(200, this.width * 0.4)))];
      this.y = new Scale(counts, { withZero: true }).between(bottom, top);
      const left = this.paintUp(this.y);
      this.x = new Scale(edges).between(left, this.right);
      this.paintAcross(this.x, bottom, bottom);
      const bars = counts.map((count, i) => {
        const [start, end] = [round(this.x.at(edges[i]) + 0.5), round(this.x.at(edges[i + 1]) - 0.5)];
        return count ? `M${start},${bottom}V${round(this.y.at(count))}H${end}V${bottom}z` : "";
      });
      add(add(this.svg, "g", { class: colour(0) }), "path", { class: "bar", d: bars.join("") });
      this.paintReferenceAcross(this.x, this.data.x.reference, top, bottom);
      return bottom + 24;
    }

    findStops() {
      const { edges, counts, x, y } = this.data;
      return counts.map((count, i) => {
        const [start, end] = [this.x.at(edges[i]), this.x.at(edges[i + 1])];
        const row = { x: start, y: this.y.end, width: end - start, height: this.y.start - this.y.end };
        const title = () => `${x.title}: ${shown(edges[i])} – ${shown(edges[i + 1])}`;
        const lines = [{ text: () => `${y.title}: ${shown(count)}` }];
        return { x: (start + end) / 2, y: this.y.at(count), row, points: [], lines, title };
      });
    }
  }

  const KINDS = { lines: LinePlot, items: ItemPlot, histogram: Histogram };
  const plots = JSON.parse(document.getElementById("plots").textContent);
  for (const figure of document.querySelectorAll("figure.plot")) {
    const data = plots[Number(figure.dataset.plot)];
    new KINDS[data.kind](figure, data);
  }

  // Sections that fold: closed on phones, open in print

  const folds = document.querySelectorAll("details");
  if (matchMedia("(max-width: 32rem)").matches) for (const fold of folds) fold.open = false;
  addEventListener("beforeprint", () => { for (const fold of folds) fold.open = true; });

  // Buttons of the page

  const theme = document.getElementById("theme");
  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (systemIsDark.matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  systemIsDark.addEventListener("change", nameTheme);
  nameTheme();

  for (const button of document.querySelectorAll(".copy")) {
    const code = button.parentElement.querySelector("code");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch { // no clipboard: select the text for the reader to copy
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
    });
  }
})();
