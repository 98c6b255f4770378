// Drawings from data. As in dom.js, what others wrote goes in as text. Sizes are attributes: the page's policy forbids style
// attributes.

const SPACE = "http://www.w3.org/2000/svg";

// Makes an element of a drawing.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== undefined && child !== null && child !== false));
  return element;
}

export const percent = part => `${(100 * part).toFixed(3)}%`;
