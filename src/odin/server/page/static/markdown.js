// Markdown as vnodes. What has been parsed stays parsed: while an answer grows, only its tail is parsed again.

import { Component, Fragment, html, useState } from './base.js';
import { Lexer } from './vendor/marked.js';

const PIECE = 8_000; // characters that are parsed at once
const GROUP = 40; // finished blocks that are rendered together
const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)(?:\n|$)/;

// The blocks of a growing text: `done` will not change any more, `open` may.
export class Markdown {
  done = [];
  open = [];
  #at = 0;
  #seen = '';
  #isLive = true;
  #links = {};
  #quietUntil = 0;

  // Takes the whole text so far. Returns false if parsing the rest waits, so that long parsing takes a small share of the time.
  update(text, isLive) {
    if (text.length < this.#seen.length || !text.startsWith(this.#seen.slice(-64), this.#seen.length - Math.min(this.#seen.length, 64))) {
      Object.assign(this, { done: [], open: [] });
      this.#at = 0;
    } else if (text.length === this.#seen.length && isLive === this.#isLive) {
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
      const fence = FENCE.exec(rest);
      if (fence) {
        const end = findFenceEnd(rest, fence);
        const code = { type: 'code', lang: fence[2].trim(), text: rest.slice(fence[0].length, end.text) };
        if (end.next < 0) {
          this.open = [code];
          return;
        }
        this.done.push(code);
        this.#at += end.next;
        continue;
      }
      const tokens = this.#lex(rest.slice(0, PIECE));
      if (rest.length > PIECE) {
        this.#finish(rest, tokens);
        continue;
      }
      const keep = this.#isLive ? 2 : 0;
      for (const token of tokens.slice(0, Math.max(tokens.length - keep, 0))) {
        // A fence is left to the loop, which finds out whether it is closed.
        if (token.type === 'code' && FENCE.test(token.raw)) break;
        tokens.shift();
        this.done.push(token);
        this.#at += token.raw.length;
      }
      if (tokens.length && this.#at && FENCE.test(tokens[0].raw)) continue;
      this.open = tokens;
      return;
    }
  }

  // Finishes what of a piece cannot change: all but the last block, or what is whole of a block longer than the piece.
  #finish(rest, tokens) {
    const sure = tokens.slice(0, -1);
    const [last] = tokens.slice(-1);
    let size = sure.reduce((sum, token) => sum + token.raw.length, 0);
    if (sure.every(({ type }) => type === 'space')) {
      if (last.type === 'list' && last.items.length > 1) {
        const items = last.items.slice(0, -1);
        sure.push({ ...last, items });
        size += items.reduce((sum, item) => sum + item.raw.length, 0);
      } else {
        const room = last.type === 'table' ? PIECE * 20 : PIECE;
        const cut = rest.lastIndexOf('\n', room - 1) + 1 || room;
        sure.splice(0, sure.length, ...this.#lex(rest.slice(0, cut)));
        size = cut;
      }
    }
    this.done.push(...sure);
    this.#at += Math.min(size, rest.length);
  }

  #lex(text) {
    const lexer = new Lexer({ gfm: true });
    lexer.tokens.links = this.#links;
    return [...lexer.lex(text)];
  }
}

function findFenceEnd(text, fence) {
  const closing = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}[ \\t]*(?:\\n|$)`, 'gm');
  closing.lastIndex = fence[0].length;
  const found = fence[0].endsWith('\n') ? closing.exec(text) : null;
  if (!found) return { text: text.length, next: -1 };
  return { text: Math.max(found.index - 1, fence[0].length), next: found.index + found[0].length };
}

export function MarkdownText({ text, live = false, parsed }) {
  const [own] = useState(() => parsed ?? new Markdown());
  const [, again] = useState(0);
  const markdown = parsed ?? own;
  if (!markdown.update(text, live)) setTimeout(() => again(text.length), 60);
  const groups = [];
  for (let at = 0; at < markdown.done.length; at += GROUP) {
    const tokens = markdown.done.slice(at, at + GROUP);
    groups.push(html`<${Finished} key=${at} count=${tokens.length} tokens=${tokens} />`);
  }
  return html`<div class="markdown" dir="auto">${groups}<${Fragment} key="open">${markdown.open.map(renderBlock)}<//></div>`;
}

class Finished extends Component {
  shouldComponentUpdate(next) {
    return next.count !== this.props.count || next.tokens[0] !== this.props.tokens[0];
  }

  render({ tokens }) {
    return tokens.map(renderBlock);
  }
}

function renderBlock(token) {
  switch (token.type) {
    case 'space': case 'def': return null;
    case 'heading': return html`<div class="heading" role="heading" aria-level=${Math.min(token.depth + 2, 6)} data-depth=${token.depth} dir="auto">${renderInline(token.tokens)}</div>`;
    case 'code': return html`<${CodeBlock} text=${token.text} lang=${token.lang ?? ''} />`;
    case 'hr': return html`<hr />`;
    case 'blockquote': return html`<blockquote dir="auto">${token.tokens.map(renderBlock)}</blockquote>`;
    case 'list': return renderList(token);
    case 'table': return renderTable(token);
    case 'text': return html`<${Fragment}>${renderInline(token.tokens ?? [token])}<//>`;
    case 'html': return html`<p dir="auto">${token.text.trimEnd()}</p>`;
    default: return html`<p dir="auto">${token.tokens ? renderInline(token.tokens) : token.text ?? token.raw}</p>`;
  }
}

function renderList(token) {
  const items = token.items.map((item) => html`<li dir="auto" class=${item.task ? 'task' : ''}>${
    item.task ? html`<span class="box" aria-label=${item.checked ? 'done' : 'open'} role="img">${item.checked ? '✓' : '○'}</span> ` : null
  }${item.tokens.filter(({ type }) => type !== 'checkbox').map(renderBlock)}</li>`);
  return token.ordered ? html`<ol start=${token.start === 1 || token.start === '' ? undefined : token.start}>${items}</ol>` : html`<ul>${items}</ul>`;
}

function renderTable(token) {
  const cell = (tag) => (one, at) => html`<${tag} dir="auto" data-align=${token.align[at] ?? undefined} scope=${tag === 'th' ? 'col' : undefined}>${renderInline(one.tokens)}<//>`;
  return html`<div class="table" role="region" aria-label="Table" tabindex="0"><table>
    <thead><tr>${token.header.map(cell('th'))}</tr></thead>
    <tbody>${token.rows.map((row) => html`<tr>${row.map(cell('td'))}</tr>`)}</tbody>
  </table></div>`;
}

const renderInline = (tokens = []) => tokens.map((token) => {
  switch (token.type) {
    case 'strong': return html`<strong>${renderInline(token.tokens)}</strong>`;
    case 'em': return html`<em>${renderInline(token.tokens)}</em>`;
    case 'del': return html`<del>${renderInline(token.tokens)}</del>`;
    case 'codespan': return html`<code dir="auto">${token.text}</code>`;
    case 'br': return html`<br />`;
    case 'link': return renderLink(token);
    // Nothing is fetched from elsewhere: an image is its description.
    case 'image': return html`<span class="picture">${token.text || token.href}</span>`;
    case 'text': return token.tokens ? renderInline(token.tokens) : decodeEntities(token.text);
    default: return token.text ?? token.raw;
  }
});

function renderLink({ href, tokens }) {
  if (!/^(https?:|mailto:)/i.test(href)) return html`<span class="picture">${renderInline(tokens)}</span>`;
  return html`<a href=${href} target="_blank" rel="noopener noreferrer" title=${href}>${renderInline(tokens)}</a>`;
}

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', ndash: '–', mdash: '—', hellip: '…', rarr: '→', larr: '←', times: '×', copy: '©' };

const decodeEntities = (text) => (text.includes('&') ? text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w+));/gi, (found, ten, hex, name) => {
  const code = ten ? Number(ten) : hex ? parseInt(hex, 16) : 0;
  return code ? (code <= 0x10ffff ? String.fromCodePoint(code) : found) : ENTITIES[name] ?? found;
}) : text);

// --- code ---

const CHUNK = 12_000;

class Chunk extends Component {
  shouldComponentUpdate({ text, lang }) {
    return text !== this.props.text || lang !== this.props.lang;
  }

  render({ text, lang }) {
    return html`<span class="chunk">${text.length <= CHUNK * 2 ? highlight(text, lang) : text}</span>`;
  }
}

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

export function CodeBlock({ text, lang }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard?.writeText(text).then(() => {
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  });
  const name = lang.split(/[\s,{]/)[0];
  return html`<div class="code">
    <div class="code-head"><span dir="auto">${name}</span><button type="button" class="small" onClick=${copy}>${isCopied ? 'Copied' : 'Copy'}</button></div>
    <pre tabindex="0" dir="auto" aria-label=${name ? `Code, ${name}` : 'Code'} role="region"><code>${[...splitCode(text)].map((part, at) => html`<${Chunk} key=${at} text=${part} lang=${name} />`)}</code></pre>
  </div>`;
}

const WORDS = new Set(`abstract and as assert async await bool boolean break byte case catch char class const continue def default defer del do double elif else end enum except export extends extern false False final finally float fn for from func function global go if impl implements import in int interface is let local long loop match mod mut namespace new nil None not null nullptr of or package pass private protected pub public raise return select self Self short static str string struct super switch then this throw throws trait true True try type typeof undefined union unsafe use using var virtual void where while with yield fi done esac echo`.split(' '));
const HASH = /^(py|python|sh|bash|zsh|shell|console|rb|ruby|ya?ml|toml|make|makefile|dockerfile|r|perl|ini|conf|elixir)$/i;
const PLAIN = /^(|text|txt|plain|output|log|markdown|md)$/i;

function highlight(text, lang) {
  if (PLAIN.test(lang)) return text;
  if (/^(diff|patch)$/i.test(lang)) {
    return text.split(/(?<=\n)/).map((line) => (/^[+-]/.test(line) ? html`<span class=${line[0] === '+' ? 'added' : 'removed'}>${line}</span>` : line));
  }
  const comment = HASH.test(lang) ? '#[^\\n]*' : lang === 'sql' ? '--[^\\n]*' : '\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?\\*\\/';
  const pattern = new RegExp(`(${comment})|("(?:\\\\.|[^"\\\\\\n])*"|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\`)|\\b(\\d[\\w.]*)|([A-Za-z_]\\w*)`, 'g');
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    const kind = found[1] ? 'comment' : found[2] ? 'string' : found[3] ? 'number' : WORDS.has(found[4]) ? 'word' : '';
    if (!kind) continue;
    if (found.index > at) parts.push(text.slice(at, found.index));
    parts.push(html`<span class=${`hl-${kind}`}>${found[0]}</span>`);
    at = found.index + found[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}
