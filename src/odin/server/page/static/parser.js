// Markdown to tokens: the part of CommonMark and its tables that models write. HTML is text.

const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:( +)(?=\S)|[ \t]*$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const FENCE = /^ {0,3}(`{3,}(?=[^`\n]*(?:\n|$))|~{3,})([^\n]*)(?:\n|$)/;
const TASK = /^\[([ xX])\][ \t]+/;
const isBlank = (line) => !line.trim();
// The first line from here that is not blank, or not as `test` says.
const skip = (lines, at, test = isBlank) => { while (at < lines.length && test(lines[at])) at++; return at; };

const startsBlock = (line) => HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || FENCE.test(line) || /^ {0,3}([-*+]|1[.)]) +\S/.test(line);

// Returns the blocks of a text; `size` is how many characters a block takes, with the blank lines after it.
export function parseBlocks(text) {
  const lines = text.split('\n');
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const from = at;
    at = skip(lines, at);
    const [block, next] = at < lines.length ? readBlock(lines, at) : [null, at];
    at = skip(lines, next);
    const size = lines.slice(from, at).reduce((sum, line) => sum + line.length + 1, 0) - (at >= lines.length ? 1 : 0);
    if (block) blocks.push({ ...block, size });
    else if (blocks.length) blocks.at(-1).size += size;
    else if (size) blocks.push({ type: 'space', size });
  }
  return blocks;
}

function readBlock(lines, at) {
  const line = lines[at];
  const heading = HEADING.exec(line);
  if (heading) return [{ type: 'heading', depth: heading[1].length, text: heading[2] ?? '' }, at + 1];
  if (FENCE.test(line)) {
    const rest = lines.slice(at).join('\n');
    const code = readFence(rest);
    return [{ ...code, isFenced: true }, code.next < 0 ? lines.length : at + rest.slice(0, code.next).replace(/\n$/, '').split('\n').length];
  }
  if (RULE.test(line)) return [{ type: 'hr' }, at + 1];
  if (QUOTE.test(line)) return readQuote(lines, at);
  if (ITEM.test(line)) return readList(lines, at);
  if (line.includes('|') && DELIMITERS.test(lines[at + 1] ?? '') && splitRow(lines[at + 1]).length === splitRow(line).length) return readTable(lines, at);
  if (/^( {4}|\t)/.test(line)) return readIndented(lines, at);
  let end = at + 1;
  for (; end < lines.length && !isBlank(lines[end]); end++) {
    const under = UNDERLINE.exec(lines[end]);
    if (under) return [{ type: 'heading', depth: under[1][0] === '=' ? 1 : 2, text: lines.slice(at, end).join('\n').trim() }, end + 1];
    if (startsBlock(lines[end])) break;
  }
  return [{ type: 'paragraph', text: lines.slice(at, end).map((one) => one.trimStart()).join('\n').trimEnd() }, end];
}

// The fenced code that a text begins with; `next` is where the text goes on, -1 if it is not closed.
export function readFence(text) {
  const fence = FENCE.exec(text);
  if (!fence) return null;
  const [{ length: start }, mark, lang] = fence;
  const closing = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*(?:\\n|$)`, 'gm');
  closing.lastIndex = start;
  const found = fence[0].endsWith('\n') ? closing.exec(text) : null;
  const code = text.slice(start, found ? Math.max(found.index - 1, start) : text.length);
  const indent = new RegExp(`^ {0,${text.search(/\S/)}}`, 'gm');
  return { type: 'code', lang: lang.trim(), text: code.replace(indent, ''), next: found ? found.index + found[0].length : -1 };
}

function readIndented(lines, at) {
  const end = skip(lines, at, (line) => isBlank(line) || /^( {4}|\t)/.test(line));
  return [{ type: 'code', lang: '', text: lines.slice(at, end).map((line) => line.replace(/^( {4}|\t)/, '')).join('\n').trimEnd() }, end];
}

function readQuote(lines, at) {
  const end = skip(lines, at, (line) => QUOTE.test(line) || (!isBlank(line) && !startsBlock(line)));
  return [{ type: 'quote', blocks: parseBlocks(lines.slice(at, end).map((line) => line.replace(QUOTE, '')).join('\n')) }, end];
}

function readList(lines, at) {
  const kind = ITEM.exec(lines[at])[2].at(-1);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end]);
    if (!found || found[2].at(-1) !== kind || RULE.test(lines[end])) break;
    const indent = found[1].length + found[2].length + Math.min(found[3]?.length ?? 1, 4);
    const inner = new RegExp(`^(?: {${indent}}|\\t)`);
    const own = [lines[end].slice(indent)];
    for (end++; end < lines.length; end++) {
      const line = lines[end];
      if (isBlank(line)) {
        const after = skip(lines, end);
        if (after >= lines.length || !inner.test(lines[after])) break;
      } else if (!inner.test(line) && (isBlank(lines[end - 1]) || ITEM.test(line) || startsBlock(line))) break;
      own.push(line.replace(inner, ''));
    }
    const after = skip(lines, end);
    if (after < lines.length && ITEM.exec(lines[after])?.[2].at(-1) === kind) end = after;
    const task = TASK.exec(own[0]);
    if (task) own[0] = own[0].slice(task[0].length);
    const blocks = parseBlocks(own.join('\n'));
    items.push({ blocks, isDone: task ? task[1] !== ' ' : null });
  }
  const start = /\d/.test(ITEM.exec(lines[at])[2]) ? parseInt(ITEM.exec(lines[at])[2], 10) : null;
  return [{ type: 'list', start, items }, end];
}

const splitRow = (line) => {
  const cells = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '').split(/(?<!\\)\|/);
  return cells.map((cell) => cell.trim().replaceAll('\\|', '|'));
};

function readTable(lines, at) {
  const align = splitRow(lines[at + 1]).map((cell) => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : undefined));
  const header = splitRow(lines[at]);
  const end = skip(lines, at + 2, (line) => !isBlank(line) && !startsBlock(line));
  const rows = lines.slice(at + 2, end).map((line) => header.map((_, column) => splitRow(line)[column] ?? ''));
  return [{ type: 'table', header, align, rows }, end];
}

const INLINE = new RegExp([
  /\\(?<escape>[!-/:-@[-`{-~])/,
  /(?<tick>`+)(?!`)(?<code>[^]*?[^`])\k<tick>(?!`)/,
  /(?<image>!?)\[(?<label>(?:[^[\]\\]|\\.|!?\[[^[\]]*\](?:\([^()]*\))?)*)\]\(\s*<?(?<href>[^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/,
  /<(?<auto>(?:https?:\/\/|mailto:)[^\s<>]+)>/,
  /(?<url>\bhttps?:\/\/[^\s<>`*|]*[^\s<>`*|.,:;!?'")\]])/,
  /(?<two>\*\*|(?<![\w_])__)(?=\S)(?<strong>[^]*?[^\s\\])\k<two>(?![*\w])/,
  /(?<one>\*|(?<![\w_])_)(?![\s*_])(?<em>(?:\*\*[^*]+\*\*|[^*])*?[^\s*\\])\k<one>(?![*\w])/,
  /~~(?=\S)(?<del>[^]*?\S)~~/,
  /(?: {2,}|\\)\n(?<br>)/,
  /&(?<entity>amp|lt|gt|quot|nbsp);/,
].map(({ source }) => source).join('|'), 'gi');
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: '\u00a0' };

// Returns text and nodes: {type, text} or {type, parts}.
export function parseInline(text) {
  const parts = [];
  let at = 0;
  for (const { 0: found, index, groups } of text.matchAll(INLINE)) {
    if (index > at) parts.push(text.slice(at, index));
    parts.push(readInline(groups));
    at = index + found.length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

function readInline({ escape, code, image, label, href, auto, url, strong, em, del, br, entity }) {
  if (escape) return escape;
  if (code !== undefined) return { type: 'code', text: code.replace(/\n/g, ' ').replace(/^ (.*\S.*) $/, '$1') };
  if (href !== undefined) return image ? { type: 'image', text: label || href } : { type: 'link', href, parts: parseInline(label) };
  if (auto ?? url) return { type: 'link', href: auto ?? url, parts: [auto ?? url] };
  if (strong !== undefined) return { type: 'strong', parts: parseInline(strong) };
  if (em !== undefined) return { type: 'em', parts: parseInline(em) };
  if (del !== undefined) return { type: 'del', parts: parseInline(del) };
  if (br !== undefined) return { type: 'br' };
  return ENTITIES[entity.toLowerCase()];
}
