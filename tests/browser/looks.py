"""How pages are looked at: narrow and wide, light and dark, and what is hard to read."""

LOOKS = {
    f"{width}-{scheme}": {
        "viewport": {"width": width, "height": 900},
        "color_scheme": scheme,
    }
    for width in (400, 1400)
    for scheme in ("light", "dark")
}

# Text that contrasts with what is behind it by less than WCAG's 4.5, backgrounds blended in order.
FAINT = """
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const blend = (colors) => {
    pen.clearRect(0, 0, 1, 1);
    for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => rgb.map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("script, figure svg, .anchor, .skip")) continue;
    if (!element.checkVisibility()) continue;
    const behind = [];
    for (let e = element; e; e = e.parentElement) {
      behind.unshift(getComputedStyle(e).backgroundColor);
    }
    const ground = blend(behind);
    const ink = blend([`rgb(${ground.join(" ")})`, getComputedStyle(element).color]);
    const [low, high] = [luminance(ground), luminance(ink)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) faint.push([ratio.toFixed(2), element.outerHTML.slice(0, 120)]);
  }
  return faint;
}
"""
