/* Numbers as Grafana's units show them: only those that dashboards here use; others keep the bare number. */
(function (root) {
  "use strict";
  root.preview = root.preview || {};

  function digits(value, decimals) {
    if (decimals !== null && decimals !== undefined) return value.toFixed(decimals);
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 100) return value.toFixed(0);
    return String(Number(value.toPrecision(3)));
  }

  function scaled(value, decimals, steps) {
    const size = Math.abs(value);
    const [factor, suffix] = steps.find(([from]) => size >= from) || steps[steps.length - 1];
    return digits(value / factor, decimals) + suffix;
  }

  const SECONDS = [[86400, " d"], [3600, " h"], [60, " min"], [1, " s"], [1e-3, " ms"], [1e-6, " µs"], [1e-9, " ns"]];
  const SHORT = [[1e9, " Bil"], [1e6, " Mil"], [1e3, " K"], [1e-12, ""]].map(([from, s]) => [from === 1e-12 ? 1 : from, s]);

  function iso(milliseconds) {
    const date = new Date(milliseconds - new Date(milliseconds).getTimezoneOffset() * 60000);
    return date.toISOString().slice(0, 19).replace("T", " ");
  }

  root.preview.format = function (value, unit, decimals) {
    if (value === null || value === undefined) return "";
    if (typeof value !== "number") return String(value);
    if (!isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
    switch (unit) {
      case "s": return value === 0 ? "0 s" : scaled(value, decimals, SECONDS);
      case "ms": return value === 0 ? "0 ms" : scaled(value / 1000, decimals, SECONDS);
      case "percentunit": return digits(value * 100, decimals === null || decimals === undefined ? null : decimals) + "%";
      case "reqps": return digits(value, decimals) + " req/s";
      case "cps": return scaled(value, decimals, SHORT) + " c/s";
      case "short": return scaled(value, decimals, SHORT);
      case "dateTimeAsIso": return iso(value);
      default: return digits(value, decimals);
    }
  };

  const NAMED = {
    red: "#e02f44", orange: "#ff780a", yellow: "#e0b400", green: "#37872d", blue: "#1f60c4", purple: "#8f3bb8",
    transparent: "rgba(0,0,0,0)", text: "",
  };
  root.preview.colour = (name) => (name in NAMED ? NAMED[name] : name);
  root.preview.palette = [
    "#56a64b", "#e0b400", "#3274d9", "#ff780a", "#e02f44", "#8f3bb8", "#19730e", "#cc9d00", "#1250b0", "#c4162a",
    "#705da0", "#0a9396", "#7c5e10", "#b5179e", "#4895ef", "#606c38",
  ];
})(window);
