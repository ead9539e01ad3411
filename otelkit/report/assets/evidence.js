/* The smaller charts: placebo distributions, the causal graph, two calls side by side. */
(function (root) {
  "use strict";

  function ms(value) {
    const size = Math.abs(value);
    return size >= 10 || size === 0 ? String(Math.round(value)) : value.toFixed(size >= 1 ? 1 : 2);
  }

  function signed(value) {
    return (value > 0 ? "+" : "") + ms(value);
  }

  function axis(theme, name, more) {
    return Object.assign(
      {
        type: "value",
        name,
        nameLocation: "middle",
        nameGap: 26,
        nameTextStyle: { color: theme.muted, fontSize: 12 },
        axisLabel: { color: theme.muted, fontSize: 12, hideOverlap: true },
        axisLine: { show: true, lineStyle: { color: theme.line } },
        axisTick: { show: true, lineStyle: { color: theme.line } },
        splitLine: { show: false },
      },
      more,
    );
  }

  /** Effects at dates without a change as a histogram, the change's own effect and interval on the same axis. */
  root.otelkit.placebo = function (placebo, theme, color) {
    const { edges, counts, effect } = placebo;
    const low = Math.min(edges[0], placebo.low ?? effect, effect, 0);
    const high = Math.max(edges[edges.length - 1], placebo.high ?? effect, effect, 0);
    const margin = (high - low) * 0.05;
    const right = effect > (low + high) / 2;
    return {
      animation: false,
      textStyle: { fontFamily: theme.font },
      grid: { left: 46, right: 14, top: 30, bottom: 42 },
      xAxis: axis(theme, "effect on P99, ms", {
        min: low - margin,
        max: high + margin,
        axisLabel: {
          color: theme.muted,
          fontSize: 12,
          hideOverlap: true,
          showMinLabel: false,
          showMaxLabel: false,
          formatter: (value) => ms(value),
        },
      }),
      yAxis: axis(theme, "dates", {
        nameGap: 32,
        minInterval: 1,
        axisLine: { show: false },
        axisTick: { show: false },
        splitLine: { lineStyle: { color: theme.line, opacity: 0.7 } },
      }),
      series: [
        {
          type: "custom",
          silent: true,
          encode: { x: [0, 1], y: 2 },
          data: counts.map((count, i) => [edges[i], edges[i + 1], count]),
          renderItem: (params, api) => {
            const [x1, y1] = api.coord([api.value(0), api.value(2)]);
            const [x2, y2] = api.coord([api.value(1), 0]);
            return {
              type: "rect",
              shape: { x: x1 + 0.5, y: y1, width: Math.max(1, x2 - x1 - 1), height: y2 - y1 },
              style: { fill: theme.load },
            };
          },
          markArea:
            placebo.low === null || placebo.high === null
              ? undefined
              : {
                  silent: true,
                  animation: false,
                  itemStyle: { color, opacity: 0.14 },
                  data: [[{ xAxis: placebo.low }, { xAxis: placebo.high }]],
                },
          markLine: {
            silent: true,
            symbol: "none",
            animation: false,
            lineStyle: { color, width: 2, type: "solid" },
            label: {
              show: true,
              position: "end",
              align: right ? "right" : "left",
              color,
              fontWeight: 600,
              fontSize: 12,
              formatter: `this change ${signed(effect)} ms`,
            },
            data: [{ xAxis: effect }],
          },
        },
      ],
    };
  };

  /** Columns of nodes from left to right, each centred on its own: parameters, paths, P99. */
  function columns(graph, width, height) {
    const box = width < 560 ? Math.floor((width - 72) / 3) : Math.min(230, Math.floor(width / 4));
    const at = [box / 2 + 2, width / 2, width - box / 2 - 2];
    const lists = [graph.changes, graph.paths, [graph.target]];
    return lists.flatMap((nodes, column) =>
      nodes.map((node, row) => ({
        node,
        column,
        box,
        x: at[column],
        y: (height * (row + 0.5)) / nodes.length,
      })),
    );
  }

  root.otelkit.graph = function (graph, theme, width) {
    const narrow = width < 560;
    const boxHeight = narrow ? 62 : 44;
    const rows = Math.max(graph.changes.length, graph.paths.length);
    const height = rows * (boxHeight + 16) + 8;
    const largest = Math.max(...graph.edges.map((edge) => Math.abs(edge.ms)), 1e-9);
    const fed = (id) => graph.edges.filter((edge) => edge.to === id).length;
    const styles = [
      { borderColor: theme.causal, backgroundColor: theme.ground, fontWeight: 600 },
      { borderColor: theme.line, backgroundColor: theme.raised, fontWeight: 400 },
      { borderColor: theme.ink, backgroundColor: theme.ground, fontWeight: 600 },
    ];
    const nodes = columns(graph, width, height).flatMap(({ node, column, box, x, y }) => {
      const port = (name, dx) => ({ name: `${node.id}:${name}`, value: [x + dx, y], symbolSize: 0 });
      return [
        // Edges end at the box's sides, not under it.
        port("in", -box / 2 - 1),
        port("out", box / 2 + 1),
        {
          name: node.id,
          value: [x, y],
          symbolSize: 1,
          itemStyle: { color: "transparent" },
          label: Object.assign(
            {
              show: true,
              position: "inside",
              formatter: () => `${node.name}\n${signed(node.ms)} ms`,
              color: theme.ink,
              fontSize: narrow ? 11 : 13,
              lineHeight: narrow ? 14 : 18,
              width: box,
              height: boxHeight,
              overflow: "break",
              align: "center",
              verticalAlign: "middle",
              borderWidth: 1.5,
              borderRadius: 4,
            },
            styles[column],
          ),
        },
      ];
    });
    const option = {
      animation: false,
      textStyle: { fontFamily: theme.font },
      grid: { left: 0, right: 0, top: 0, bottom: 0 },
      xAxis: { type: "value", show: false, min: 0, max: width },
      yAxis: { type: "value", show: false, min: 0, max: height, inverse: true },
      series: [
        {
          type: "graph",
          // Positions are pixels: on axes of their own they are kept, whatever the extent of the nodes.
          layout: "none",
          coordinateSystem: "cartesian2d",
          silent: true,
          edgeSymbol: ["none", "arrow"],
          edgeSymbolSize: 8,
          data: nodes,
          links: graph.edges.map((edge) => ({
            source: `${edge.from}:out`,
            target: `${edge.to}:in`,
            lineStyle: {
              color: edge.ms >= 0 ? theme.causal : theme.without,
              width: 1 + (5 * Math.abs(edge.ms)) / largest,
              opacity: 0.6,
              curveness: 0,
              type: edge.ms >= 0 ? "solid" : "dashed",
            },
            // Where one change alone feeds a path, the boxes say it already.
            label: {
              show: !narrow && edge.to !== "p99" && fed(edge.to) > 1,
              formatter: () => `${signed(edge.ms)} ms`,
              color: theme.ink,
              fontSize: 12,
              backgroundColor: theme.ground,
              padding: [1, 4],
            },
          })),
        },
      ],
    };
    return { option, height };
  };

  /** Token steps of two calls on one axis that begins with each call: first token apart, later steps in two shades. */
  root.otelkit.exemplars = function (calls, theme, width) {
    const narrow = width < 560;
    const rows = calls.flatMap((call, row) => {
      const ends = call.ends.length ? call.ends : [call.total];
      return ends.map((end, i) => [i ? ends[i - 1] : 0, end, row, i]);
    });
    const last = Math.max(
      ...calls.map((call) => call.total),
      ...calls.flatMap((call) => call.ends.slice(-1)),
    );
    const option = {
      animation: false,
      textStyle: { fontFamily: theme.font },
      grid: { left: narrow ? 52 : 64, right: 14, top: 8, bottom: 44 },
      xAxis: axis(theme, "ms since the call began", {
        min: 0,
        max: last,
        axisLabel: { color: theme.muted, fontSize: 12, hideOverlap: true, formatter: (value) => ms(value) },
      }),
      yAxis: {
        type: "category",
        inverse: true,
        data: calls.map((call) => call.name),
        axisLine: { show: false },
        axisTick: { show: false },
        axisLabel: { color: theme.ink, fontSize: 13 },
      },
      series: [
        {
          type: "custom",
          silent: true,
          encode: { x: [0, 1], y: 2 },
          data: rows,
          renderItem: (params, api) => {
            const [x1, y] = api.coord([api.value(0), api.value(2)]);
            const [x2] = api.coord([api.value(1), api.value(2)]);
            const index = api.value(3);
            const gap = x2 - x1 > 3 ? 1 : 0;
            return {
              type: "rect",
              shape: { x: x1, y: y - 13, width: Math.max(0.5, x2 - x1 - gap), height: 26 },
              style: {
                fill: index === 0 ? theme.unclear : theme.correlated,
                opacity: index % 2 ? 0.62 : 0.9,
              },
            };
          },
        },
      ],
    };
    return { option, height: 150 };
  };
})(window);
