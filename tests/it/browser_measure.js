// Measures the page in a browser, and replaces it by the numbers as JSON.
(() => {
  const area = (r) => r.width * r.height;
  const over = (a, b) =>
    Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
    Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  // What a reader sees at first, without what is folded.
  const shown = document.body.innerText;
  // Pictures of folded parts have no size.
  document.querySelectorAll('details').forEach((part) => { part.open = true; });
  const figures = [...document.querySelectorAll('svg')].map((svg) => {
    const texts = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim());
    const boxes = texts.map((t) => t.getBoundingClientRect());
    const overlaps = [];
    for (let i = 0; i < boxes.length; i++)
      for (let j = 0; j < i; j++)
        if (over(boxes[i], boxes[j]) > 0.2 * Math.min(area(boxes[i]), area(boxes[j])))
          overlaps.push(texts[j].textContent + ' | ' + texts[i].textContent);
    const marks = svg.querySelectorAll('circle,path,rect,polyline,line').length;
    const outer = svg.getBoundingClientRect();
    const outside = texts.filter((t, i) => boxes[i].left < outer.left - 2 || boxes[i].right > outer.right + 2
      || boxes[i].top < outer.top - 2 || boxes[i].bottom > outer.bottom + 2).map((t) => t.textContent);
    // Pixels of the page per unit of the picture.
    const scale = svg.getScreenCTM().a;
    const small = texts.filter((t) => parseFloat(getComputedStyle(t).fontSize) * scale < 9).map((t) => t.textContent);
    return { label: svg.getAttribute('aria-label'), area: area(outer), marks, overlaps, outside, small };
  });
  const tips = [...document.querySelectorAll('svg title')].map((t) => t.textContent);
  const measured = {
    figures, tips, shown,
    wide: document.body.scrollWidth - document.body.clientWidth,
    text: document.body.innerText, scripts: document.scripts.length,
    active: document.querySelectorAll('iframe,object,embed,form,input,a[href^="javascript"]').length,
    resources: performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !n.startsWith('data:')),
    run: typeof window.pwned !== 'undefined',
  };
  document.documentElement.innerHTML = '<body><pre id="measured"></pre></body>';
  document.getElementById('measured').textContent = btoa(unescape(encodeURIComponent(JSON.stringify(measured))));
})();
