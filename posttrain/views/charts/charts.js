"use strict";
/* Draws every figure that carries a specification of Vega-Lite, once it is near the window. */
(() => {
  // Expressions are interpreted, so that a page may forbid what makes code of text.
  const options = { actions: false, ast: true, renderer: "svg", tooltip: { disableDefaultStyle: true } };

  async function draw(plot) {
    if (plot.dataset.drawn || !plot.clientWidth) return;
    plot.dataset.drawn = "begun";
    const spec = JSON.parse(plot.nextElementSibling.textContent);
    try {
      await vegaEmbed(plot, spec, options);
      plot.dataset.drawn = "yes";
      plot.style.minHeight = "";
    } catch (error) {
      plot.dataset.drawn = "failed";
      plot.textContent = `This chart could not be drawn: ${error.message}`;
    }
  }

  function drawCharts(root) {
    const plots = [...root.querySelectorAll(".chart .plot")];
    const near = new IntersectionObserver((seen) => {
      for (const each of seen) if (each.isIntersecting) draw(each.target);
    }, { rootMargin: "600px" });
    for (const plot of plots) near.observe(plot);
    // The rest in quiet moments, so that a page that is printed or searched has all of them.
    const quiet = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
    const next = () => {
      const plot = plots.find((each) => !each.dataset.drawn && each.clientWidth);
      if (plot) draw(plot).then(() => quiet(next));
    };
    quiet(next);
  }

  window.drawCharts = drawCharts;
  drawCharts(document);
})();
