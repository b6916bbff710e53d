// html`…`: templates that become vnodes. Each is parsed once.

import { h } from './vendor/preact.js';

const PARTS = /<\/[^>]*>|<(\0\d+\0|[\w-]+)((?:\s+(?:\.\.\.\0\d+\0|[\w:-]+(?:=(?:"[^"]*"|\0\d+\0|[^\s">]+))?))*)\s*(\/?)>|[^<]+/g;
const ATTRIBUTES = /\.\.\.\0(\d+)\0|([\w:-]+)(?:=(?:"([^"]*)"|([^\s">]+)))?/g;
const FOREIGN = new Set('p b input h1 h2 pre dt dd li th td span code legend textarea blockquote'.split(' '));
const parsed = new WeakMap();

export function html(strings, ...values) {
  let nodes = parsed.get(strings);
  if (!nodes) parsed.set(strings, (nodes = parse(strings)));
  return nodes.length === 1 ? make(nodes[0], values) : nodes.map((node) => make(node, values));
}

function parse(strings) {
  const text = strings.reduce((all, part, at) => `${all}\0${at - 1}\0${part}`);
  const root = [];
  const stack = [root];
  for (const [part, type, attributes, isClosed] of text.matchAll(PARTS)) {
    const siblings = stack.at(-1);
    if (part.startsWith('</')) {
      stack.pop();
    } else if (type) {
      const children = [];
      siblings.push({ type: readText(type), attributes: [...attributes.matchAll(ATTRIBUTES)].map(readAttribute), children });
      if (!isClosed) stack.push(children);
    } else {
      siblings.push(...splitText(part).map((one) => (typeof one === 'string' ? one.replace(/^\s*\n\s*|\s*\n\s*$/g, '') : one)).filter((one) => one !== ''));
    }
  }
  return root;
}

// Numbers stand for values.
const splitText = (text) => text.split(/\0(\d+)\0/).map((part, at) => (at % 2 ? Number(part) : part)).filter((part) => part !== '');

function readText(text) {
  const parts = splitText(text);
  return parts.length > 1 ? parts : parts[0] ?? '';
}

const readAttribute = ([, spread, name, quoted, bare]) => (spread ? ['...', Number(spread)]
  : [name, quoted !== undefined ? readText(quoted) : bare !== undefined ? readText(bare) : true]);

const fill = (part, values) => (typeof part === 'number' ? values[part] : Array.isArray(part) ? part.map((one) => fill(one, values)).join('') : part);

function make(node, values) {
  if (typeof node !== 'object') return fill(node, values);
  const props = {};
  for (const [name, value] of node.attributes) {
    if (name === '...') Object.assign(props, values[value]);
    else props[name] = fill(value, values);
  }
  const type = fill(node.type, values);
  if (type === 'button' && props.onClick) props.type ??= 'button';
  // Text may come from a model or a file, in any script.
  if (FOREIGN.has(type)) props.dir ??= 'auto';
  return h(type, props, ...node.children.map((child) => make(child, values)));
}
