// Unified diffs: read, shown, and made for edited arguments.

import { count, html, plural, useState } from './base.js';

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/;
const SHORT = 40;

// Returns the files of a diff with their rows. Rows are counted by the heads of the hunks: a removed line can look like a file.
export function parseDiff(text) {
  const files = [];
  let file = null;
  let left = [0, 0];
  let numbers = [0, 0];
  const lines = text.replace(/\n$/, '').split('\n');
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    if (left[0] > 0 || left[1] > 0) {
      const mark = line[0] ?? ' ';
      if (mark === '\\') continue;
      const kind = mark === '+' ? 'add' : mark === '-' ? 'del' : 'same';
      file.rows.push({ kind, number: kind === 'del' ? numbers[0] : numbers[1], text: line.slice(1) });
      if (kind !== 'add') { left[0]--; numbers[0]++; }
      if (kind !== 'del') { left[1]--; numbers[1]++; }
      file.added += kind === 'add';
      file.removed += kind === 'del';
      continue;
    }
    const hunk = HUNK.exec(line);
    if (hunk && file) {
      if (file.rows.length) file.rows.push({ kind: 'gap', text: hunk[5].trim() });
      numbers = [Number(hunk[1]), Number(hunk[3])];
      left = [Number(hunk[2] ?? 1), Number(hunk[4] ?? 1)];
    } else if (line.startsWith('--- ') && lines[at + 1]?.startsWith('+++ ')) {
      const [before, after] = [line, lines[at + 1]].map((name) => name.slice(4).split('\t')[0].replace(/^[ab]\//, ''));
      file = { path: after === '/dev/null' ? before : after, isNew: before === '/dev/null', isDeleted: after === '/dev/null', rows: [], added: 0, removed: 0 };
      files.push(file);
      at++;
    } else if (file && !/^(diff |index |new file|deleted file|similarity|rename|old mode|new mode|\\ )/.test(line)) {
      file.rows.push({ kind: 'note', text: line });
    }
  }
  for (const one of files) markWords(one.rows);
  return files;
}

// Where single lines were changed, marks the part that differs.
function markWords(rows) {
  for (let at = 0; at < rows.length; at++) {
    let dels = 0;
    while (rows[at + dels]?.kind === 'del') dels++;
    let adds = 0;
    while (dels && rows[at + dels + adds]?.kind === 'add') adds++;
    if (dels && dels === adds && dels <= 8) {
      for (let one = 0; one < dels; one++) markPair(rows[at + one], rows[at + dels + one]);
    }
    at += Math.max(dels + adds - 1, 0);
  }
}

function markPair(before, after) {
  const [a, b] = [before.text, after.text];
  const most = Math.min(a.length, b.length);
  let head = 0;
  while (head < most && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < most - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  if (head + tail < most * 0.4) return;
  before.part = [head, a.length - tail];
  after.part = [head, b.length - tail];
}

export const Counts = ({ added, removed }) => html`<span class="counts">${added ? html`<span class="good">+${count(added)}</span>` : ''}${
  added && removed ? ' ' : ''}${removed ? html`<span class="bad">−${count(removed)}</span>` : ''}</span>`;

// `reveal` replaces what could hide something; `showPaths` names a single file, too.
export function Diff({ text, whole = false, showPaths = false, reveal = (one) => one }) {
  const [isWhole, setWhole] = useState(whole);
  const files = parseDiff(text);
  if (!files.length || files.every(({ rows }) => !rows.length)) return html`<${PlainDiff} text=${reveal(text)} />`;
  let room = isWhole || whole ? Infinity : SHORT;
  const total = files.reduce((sum, file) => sum + file.rows.length, 0);
  const shown = files.map((file) => {
    const rows = file.rows.slice(0, Math.max(room, 0));
    room -= file.rows.length;
    return rows.length ? html`<${DiffFile} key=${file.path} file=${file} rows=${rows} reveal=${reveal} isNamed=${showPaths || files.length > 1} />` : null;
  });
  const hidden = total - SHORT;
  return html`<div class=${total > 300 ? 'diff long' : 'diff'}>${shown}${
    room < 0 ? html`<button class="more" onClick=${() => setWhole(true)}>… ${plural(hidden, 'more line')}</button>` : null}</div>`;
}

function DiffFile({ file, rows, isNamed, reveal }) {
  const words = `${file.path}, ${plural(file.added, 'line')} added, ${file.removed} removed`;
  return html`<div class="diff-file" role="group" aria-label=${`Diff of ${words}`}>
    ${isNamed ? html`<div class="diff-path"><span dir="auto">${reveal(file.path)}</span> <${Counts} ...${file} />${file.isDeleted ? ' deleted' : file.isNew ? ' new' : ''}</div>` : null}
    <div class="rows">${rows.map((row) => renderRow(row, reveal))}</div>
  </div>`;
}

const MARKS = { add: '+', del: '-', same: ' ' };

function renderRow({ kind, number, text, part }, reveal) {
  if (kind === 'gap') return html`<div class="row gap"><span class="number">⋯</span><span></span><span class="text" dir="auto">${reveal(text)}</span></div>`;
  if (kind === 'note') return html`<div class="row gap"><span></span><span></span><span class="text" dir="auto">${reveal(text)}</span></div>`;
  const shown = part && part[1] > part[0]
    ? [reveal(text.slice(0, part[0])), html`<mark>${reveal(text.slice(...part))}</mark>`, reveal(text.slice(part[1]))]
    : reveal(text);
  return html`<div class=${`row ${kind}`}><span class="number">${number}</span><span class="mark">${MARKS[kind]}</span><span class="text">${shown}</span></div>`;
}

// Text that is nearly a diff: shown line by line, so that nothing gets lost.
const PlainDiff = ({ text }) => html`<pre class="quote">${text.split(/(?<=\n)/).map((line) => (
  /^[+-]/.test(line) ? html`<span class=${line[0] === '+' ? 'added' : 'removed'}>${line}</span>` : line))}</pre>`;

// Returns the unified diff of two texts with three lines around each change.
export function makeDiff(name, before, after) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  const rows = compareLines(a, b);
  const near = rows.map((_, at) => rows.slice(Math.max(at - 3, 0), at + 4).some(({ mark }) => mark !== ' '));
  const out = [`--- requested/${name}`, `+++ edited/${name}`];
  for (let at = 0; at < rows.length; at++) {
    if (!near[at]) continue;
    let end = at;
    while (end < rows.length && near[end]) end++;
    const part = rows.slice(at, end);
    const [olds, news] = [part.filter(({ mark }) => mark !== '+').length, part.filter(({ mark }) => mark !== '-').length];
    out.push(`@@ -${part[0].a + 1},${olds} +${part[0].b + 1},${news} @@`, ...part.map(({ mark, text }) => mark + text));
    at = end - 1;
  }
  return out.join('\n');
}

function compareLines(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < Math.min(a.length, b.length) - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const [olds, news] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  // The table of longest common subsequences would be too large: then everything between is replaced.
  const isSmall = olds.length * news.length <= 1e6;
  const table = isSmall ? Array.from({ length: olds.length + 1 }, () => new Uint16Array(news.length + 1)) : null;
  for (let i = olds.length - 1; table && i >= 0; i--) {
    for (let j = news.length - 1; j >= 0; j--) {
      table[i][j] = olds[i] === news[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const rows = [];
  const push = (mark, text, i, j) => rows.push({ mark, text, a: i, b: j });
  for (let at = 0; at < head; at++) push(' ', a[at], at, at);
  let [i, j] = [0, 0];
  while (i < olds.length || j < news.length) {
    if (table && i < olds.length && j < news.length && olds[i] === news[j]) push(' ', olds[i], head + i++, head + j++);
    else if (i < olds.length && (j >= news.length || !table || table[i + 1][j] >= table[i][j + 1])) push('-', olds[i], head + i++, head + j);
    else push('+', news[j], head + i, head + j++);
  }
  for (let at = 0; at < tail; at++) push(' ', a[a.length - tail + at], a.length - tail + at, b.length - tail + at);
  return rows;
}
