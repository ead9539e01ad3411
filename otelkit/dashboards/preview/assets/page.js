/* Draws every panel of the page into its place. */
(function (root) {
  "use strict";
  const page = JSON.parse(document.getElementById("data").textContent);
  page.panels.forEach((panel) => {
    const place = document.querySelector(`[data-panel="${panel.id}"] .content`);
    if (!place || panel.kind === "row") return;
    const how = root.preview.charts[panel.kind];
    if (panel.empty || !how) return;
    how(place, panel, page);
  });
  document.documentElement.dataset.height = String(Math.ceil(document.documentElement.scrollHeight));
  document.documentElement.dataset.drawn = "yes";
})(window);
