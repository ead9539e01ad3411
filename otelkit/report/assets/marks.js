/* The changes as numbered marks in lanes above the plot, with labels where there is room for them. */
(function (root) {
  "use strict";
  root.otelkit = root.otelkit || {};

  const LANE = 20; // pixels a row of change labels takes
  const LANES_MOST = 6;
  const STEM = 22; // pixels from the lanes to the plot
  const EDGE = 8; // pixels that a label may stand out over the plot's right end

  function textWidth(text, font) {
    const context = (textWidth.context =
      textWidth.context || document.createElement("canvas").getContext("2d"));
    context.font = font;
    return context.measureText(text).width;
  }

  /**
   * Gives every mark a lane, and its label a side, so that no two overlap; a label that fits nowhere is cut to the
   * parameter's name, then left out, and its number stays. Marks that moved P99 choose first.
   */
  function place(marks, xOf, from, to, lanes) {
    const taken = Array.from({ length: lanes }, () => []);
    const free = (lane, start, end) => taken[lane].every(([a, b]) => end < a || start > b);
    const rank = { causal: 0, unclear: 1, correlated: 2, none: 3 };
    const order = marks.slice().sort((a, b) => rank[a.verdict] - rank[b.verdict] || a.n - b.n);
    const placed = new Map();
    for (const mark of order) {
      const x = xOf(mark.from);
      if (x < from - 1 || x > to - EDGE + 1) continue;
      const half = mark.half;
      const spans = mark.texts
        .flatMap(({ text, width }) => [
          { text, side: 1, start: x - half, end: x + half + 6 + width },
          { text, side: -1, start: x - half - 6 - width, end: x + half },
        ])
        .filter((span) => span.start >= 0 && span.end <= to)
        .concat({ text: "", side: 0, start: x - half, end: x + half });
      search: for (const span of spans) {
        for (let lane = 0; lane < lanes; lane++) {
          if (!free(lane, span.start - 4, span.end + 4)) continue;
          taken[lane].push([span.start, span.end]);
          placed.set(mark.n, { x, lane, side: span.side, text: span.text });
          break search;
        }
      }
      if (!placed.has(mark.n)) placed.set(mark.n, { x, lane: -1, side: 0, text: "" });
    }
    return placed;
  }

  /** The fewest lanes that show as much text as the most lanes would. */
  function lanesNeeded(marks, xOf, from, to) {
    const shown = (lanes) =>
      [...place(marks, xOf, from, to, lanes).values()].reduce(
        (sum, spot) => sum + spot.text.length + (spot.lane >= 0),
        0,
      );
    const most = shown(LANES_MOST);
    let lanes = 1;
    while (lanes < LANES_MOST && shown(lanes) < most) lanes++;
    return lanes;
  }

  function measured(marks, narrow, fontFamily) {
    return marks.map((mark) => {
      const moved = mark.verdict === "causal";
      const font = `${moved ? 600 : 400} 12px ${fontFamily}`;
      const texts = [mark.label, mark.parameter];
      if (moved && !narrow && mark.effect !== "-") texts.unshift(`${mark.label}  ${mark.effect} ms`);
      const half = Math.max(9, textWidth(String(mark.n), `600 11px ${fontFamily}`) / 2 + 5);
      return Object.assign({}, mark, {
        font,
        half,
        texts: texts.map((text) => ({ text, width: textWidth(text, font) })),
      });
    });
  }

  /** One change in the strip: a number in the shape of its verdict, its label beside it, a stem to the plot below. */
  function drawMark(mark, spot, strip, theme) {
    const color = theme[mark.verdict];
    const y = strip.top + (spot.lane + 0.5) * LANE;
    const bottom = strip.top + strip.height + STEM;
    if (spot.lane < 0) {
      return {
        type: "line",
        shape: { x1: spot.x, y1: bottom - 8, x2: spot.x, y2: bottom },
        style: { stroke: color },
      };
    }
    const moved = mark.verdict === "causal";
    const children = [
      {
        type: "line",
        shape: { x1: spot.x, y1: y + 9, x2: spot.x, y2: bottom },
        style: { stroke: color, lineWidth: 1, opacity: 0.55 },
      },
      {
        type: "rect",
        z2: 2,
        shape: { x: spot.x - mark.half, y: y - 8.5, width: 2 * mark.half, height: 17, r: 8.5 },
        style: {
          fill: moved ? color : theme.ground,
          stroke: color,
          lineWidth: 1.5,
          lineDash: mark.verdict === "unclear" ? [3, 2] : null,
        },
      },
      {
        type: "text",
        z2: 3,
        style: {
          text: String(mark.n),
          x: spot.x,
          y,
          align: "center",
          verticalAlign: "middle",
          fill: moved ? theme.ground : color,
          font: `600 11px ${theme.font}`,
        },
      },
    ];
    if (spot.side !== 0) {
      children.push({
        type: "text",
        z2: 1,
        style: {
          text: spot.text,
          // Stems of marks in higher lanes pass behind the label.
          backgroundColor: theme.ground,
          padding: [1, 2],
          x: spot.x + spot.side * (mark.half + 6),
          y,
          align: spot.side > 0 ? "left" : "right",
          verticalAlign: "middle",
          fill: moved ? color : theme.ink,
          font: mark.font,
        },
      });
    }
    return { type: "group", children };
  }

  root.otelkit.marks = { LANE, EDGE, STEM, place, lanesNeeded, measured, drawMark };
})(window);
