// Markdown as vnodes. What has been parsed stays parsed: while an answer grows, only its tail is parsed again.

import { html, useMemo, useState } from './base.js';
import { colorLines } from './diff.js';
import { parseBlocks, parseInline, readFence } from './parser.js';

const PIECE = 8_000; // characters that are parsed at once
const GROUP = 25; // finished blocks that are rendered together

// The blocks of a growing text: `done` will not change any more, `open` may.
export class Markdown {
  done = [];
  open = [];
  #at = 0;
  #seen = '';
  #isLive = true;
  #quietUntil = 0;

  // Takes the whole text so far. Returns false if it was not parsed yet: long parsing takes only a share of the time.
  update(text, isLive) {
    const known = this.#seen.length;
    if (text.length < known || !text.startsWith(this.#seen.slice(-64), Math.max(known - 64, 0))) {
      Object.assign(this, { done: [], open: [] });
      this.#at = 0;
    } else if (text.length === known && isLive === this.#isLive) {
      return true;
    }
    const started = performance.now();
    if (isLive && started < this.#quietUntil) return false;
    this.#seen = text;
    this.#isLive = isLive;
    this.#parse(text);
    const took = performance.now() - started;
    this.#quietUntil = took > 4 ? started + took * 10 : 0;
    return true;
  }

  #parse(text) {
    for (;;) {
      const rest = text.slice(this.#at);
      const code = readFence(rest);
      if (code) {
        this.open = [code];
        if (code.next < 0) return;
        this.done.push(code);
        this.#at += code.next;
        continue;
      }
      const blocks = parseBlocks(rest.slice(0, PIECE));
      if (rest.length > PIECE) {
        this.#finish(rest, blocks);
        continue;
      }
      let sure = Math.max(blocks.length - (this.#isLive ? 2 : 0), 0);
      const open = blocks.findIndex(({ isFenced }) => isFenced);
      if (open > 0) sure = open; // the loop finds out whether it is closed
      this.done.push(...blocks.slice(0, sure));
      for (const { size } of blocks.slice(0, sure)) this.#at += size;
      if (open > 0) continue;
      this.open = blocks.slice(sure);
      return;
    }
  }

  // Finishes what of a piece cannot change: all but the last block, or the lines of a block that is longer than the piece.
  #finish(rest, blocks) {
    let sure = blocks.slice(0, -1);
    if (!sure.length) {
      const room = blocks[0].type === 'table' ? PIECE * 20 : PIECE;
      sure = parseBlocks(rest.slice(0, rest.lastIndexOf('\n', room - 1) + 1 || room));
    }
    this.done.push(...sure);
    for (const { size } of sure) this.#at += size;
  }
}

export function MarkdownText({ text, live = false }) {
  const [markdown] = useState(() => new Markdown());
  const [, again] = useState(0);
  if (!markdown.update(text, live)) setTimeout(() => again(text.length), 60);
  const groups = [];
  for (let at = 0; at < markdown.done.length; at += GROUP) {
    groups.push(html`<${Finished} key=${at} blocks=${markdown.done.slice(at, at + GROUP)} />`);
  }
  return html`<div class=${groups.length > 2 ? 'markdown long' : 'markdown'} dir="auto">${groups}<div class="group" key="open">${markdown.open.map((block) => renderBlock(live ? { ...block, isLive: true } : block))}</div></div>`;
}

const Finished = ({ blocks }) => useMemo(() => html`<div class="group">${blocks.map(renderBlock)}</div>`, [blocks.length, blocks[0]]);

function renderBlock(block) {
  switch (block.type) {
    case 'heading': return html`<div class="heading" role="heading" aria-level=${Math.max(block.depth, 2)} data-depth=${block.depth} dir="auto">${renderInline(block.text)}</div>`;
    case 'paragraph': return html`<p>${renderInline(block.text)}</p>`;
    case 'code': return html`<${CodeBlock} ...${block} />`;
    case 'hr': return html`<hr />`;
    case 'quote': return html`<blockquote>${block.blocks.map(renderBlock)}</blockquote>`;
    case 'list': return html`<${block.start === null ? 'ul' : 'ol'} start=${block.start ?? undefined}>${block.items.map(renderItem)}<//>`;
    case 'table': return renderTable(block);
    default: return null;
  }
}

function renderItem({ blocks, isDone }) {
  const [first, ...rest] = blocks;
  const box = isDone === null ? null : html`<span role="img" aria-label=${isDone ? 'done' : 'open'}>${isDone ? '✓' : '○'}</span>${' '}`;
  const words = first?.type === 'paragraph' ? renderInline(first.text) : first && renderBlock(first);
  return html`<li class=${box ? 'task' : undefined}>${box}${words}${rest.map(renderBlock)}</li>`;
}

function renderTable({ header, align, rows }) {
  const cell = (tag) => (text, at) => html`<${tag} data-align=${align[at]} scope=${tag === 'th' ? 'col' : undefined}>${renderInline(text)}<//>`;
  return html`<div class="table" role="group" aria-label="Table" tabindex="0"><table>
    <thead><tr>${header.map(cell('th'))}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map(cell('td'))}</tr>`)}</tbody>
  </table></div>`;
}

const renderInline = (text) => parseInline(text).map(renderPart);

function renderPart(part) {
  if (typeof part === 'string') return part;
  const { type, text, href, parts } = part;
  if (type === 'code') return html`<code>${text}</code>`;
  if (type === 'br') return html`<br />`;
  // Nothing is fetched from elsewhere: an image is its description.
  if (type === 'image') return html`<span class="picture">${text}</span>`;
  const inner = parts.map(renderPart);
  if (type !== 'link') return html`<${type}>${inner}<//>`;
  return /^(https?:|mailto:)/i.test(href) ? html`<a href=${href} target="_blank" rel="noopener noreferrer" title=${href}>${inner}</a>` : html`<span class="picture">${inner}</span>`;
}

const CHUNK = 4_000;
const MOST_COLORED = 60_000;

const Chunk = ({ text, lang, isColored }) => useMemo(() => html`<div class="chunk">${isColored ? highlight(text, lang) : text}</div>`, [text, isColored]);

// Splits long code into pieces that end with a line, so that what has been rendered stays.
function* splitCode(text) {
  let at = 0;
  while (text.length - at > CHUNK) {
    const cut = text.indexOf('\n', at + CHUNK) + 1;
    if (!cut) break;
    yield text.slice(at, cut);
    at = cut;
  }
  yield text.slice(at);
}

function CodeBlock({ text, lang, isLive }) {
  const isColored = !isLive && text.length < MOST_COLORED;
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard?.writeText(text).then(() => {
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  });
  const name = lang.split(/[\s,{]/)[0];
  return html`<div class=${text.length > CHUNK * 4 ? 'code long' : 'code'}>
    <div class="code-head"><span>${name}</span><button class="small" onClick=${copy}>${isCopied ? 'Copied' : 'Copy'}</button></div>
    <pre tabindex="0" aria-label=${name ? `Code, ${name}` : "Code"} role="group">${[...splitCode(text)].map((part, at) => html`<${Chunk} key=${at} text=${part} lang=${name} isColored=${isColored} />`)}</pre>
  </div>`;
}

const WORDS = new Set('and as async await break case catch class const continue def default del do elif else enum except export extends false False finally fn for from func function if impl import in interface is let match new nil None not null or pass private pub public raise return self static struct super switch then this throw true True try type use var void where while with yield fi done esac'.split(' '));
const HASH = /^(py|python|sh|bash|zsh|shell|console|rb|ruby|ya?ml|toml|make|makefile|dockerfile|r|perl|ini|conf|elixir)$/i;

// Comments, strings, numbers and common words: enough to read by, whatever the language.
function highlight(text, lang) {
  if (/^(|text|txt|plain|output|log|markdown|md)$/i.test(lang)) return text;
  if (/^(diff|patch)$/i.test(lang)) return colorLines(text);
  const comment = HASH.test(lang) ? '#[^\\n]*' : lang === 'sql' ? '--[^\\n]*' : '\\/\\/[^\\n]*|\\/\\*[^]*?\\*\\/';
  const pattern = new RegExp(`(${comment})|("(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\`)|\\b(\\d[\\w.]*)|([A-Za-z_]\\w*)`, 'g');
  const parts = [];
  let at = 0;
  for (const { 0: found, 1: note, 2: string, 3: number, index } of text.matchAll(pattern)) {
    const kind = note ? 'comment' : string ? 'string' : number ? 'number' : WORDS.has(found) ? 'word' : '';
    if (!kind) continue;
    parts.push(text.slice(at, index), html`<i class=${kind}>${found}</i>`);
    at = index + found.length;
  }
  return [...parts, text.slice(at)];
}
