// Numbers and names as people read them; and elements of the page.

export function bytes(value) {
  if (value === undefined || value === null) return '–';
  const size = Math.abs(value);
  for (const [unit, scale] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]]) {
    if (size >= scale) return `${three(value / scale)} ${unit}`;
  }
  return `${value} B`;
}

/// Three significant digits, as memcalc's own text has them.
export function three(value) {
  const size = Math.abs(value);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

export function seconds(value) {
  if (value === undefined || value === null) return '–';
  if (value < 1e-3) return `${three(value * 1e6)} µs`;
  if (value < 1) return `${three(value * 1e3)} ms`;
  return value < 600 ? `${three(value)} s` : `${three(value / 60)} min`;
}

export const count = (value) => Math.round(value).toLocaleString('en');
export const words = (name) => name.replaceAll('_', ' ');

/// h('td', {class: 'number'}, 'text', child, …); null and false children are left out. `on…` listens, `.x` sets a property.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  set(element, attributes);
  element.append(...children.flat().filter(Boolean));
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name.startsWith('.')) element[name.slice(1)] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
}

/// A table of header texts and rows of cells; a cell is a text, an element, or {text, class, title}.
export function table(headings, rows, caption) {
  const cell = (content, tag = 'td') => {
    if (content instanceof Node) return h(tag, {}, content);
    const {text, ...attributes} = typeof content === 'object' && content !== null ? content : {text: content};
    return h(tag, attributes, text ?? '');
  };
  return h('table', {},
    caption ? h('caption', {class: 'visually-hidden'}, caption) : null,
    h('thead', {}, h('tr', {}, headings.map((each) => {
      const head = cell(each, 'th');
      head.scope = 'col';
      return head;
    }))),
    h('tbody', {}, rows.map(({cells = null, ...attributes}) => h('tr', attributes, cells.map((each, i) => {
      const made = cell(each, i === 0 ? 'th' : 'td');
      if (i === 0) made.scope = 'row';
      return made;
    })))));
}
