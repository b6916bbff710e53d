// Unified diffs, as files with numbered rows.

import { count, html, plural, useState } from './base.js';

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/;
const SHORT = 40;

// Returns the files of a diff. The heads of the hunks count the rows: a removed line can look like a file.
function parseDiff(text) {
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

// Where a single line was changed, marks the part that differs.
function markWords(rows) {
  const kinds = rows.map(({ kind }) => kind);
  for (let at = 1; at < rows.length; at++) {
    if (kinds[at] === 'add' && kinds[at - 1] === 'del' && kinds[at - 2] !== 'del' && kinds[at + 1] !== 'add') markPair(rows[at - 1], rows[at]);
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

// `showPaths` names a single file, too.
export function Diff({ text, whole = false, showPaths = false }) {
  const [isWhole, setWhole] = useState(whole);
  const files = parseDiff(text);
  if (!files.length || files.every(({ rows }) => !rows.length)) return html`<pre class="quote">${colorLines(text)}</pre>`;
  let room = isWhole || whole ? Infinity : SHORT;
  const total = files.reduce((sum, file) => sum + file.rows.length, 0);
  const shown = files.map((file) => {
    const rows = file.rows.slice(0, Math.max(room, 0));
    room -= file.rows.length;
    return rows.length ? html`<${DiffFile} key=${file.path} file=${file} rows=${rows} isNamed=${showPaths || files.length > 1} />` : null;
  });
  const hidden = total - SHORT;
  return html`<div class=${total > 300 ? 'diff long' : 'diff'}>${shown}${
    room < 0 && html`<button class="more" onClick=${() => setWhole(true)}>… ${plural(hidden, 'more line')}</button>`}</div>`;
}

function DiffFile({ file, rows, isNamed }) {
  const words = `${file.path}, ${plural(file.added, 'line')} added, ${file.removed} removed`;
  return html`<div class="diff-file" role="group" aria-label=${`Diff of ${words}`}>
    ${isNamed && html`<div class="diff-path"><span>${file.path}</span> <${Counts} ...${file} />${file.isDeleted ? ' deleted' : file.isNew ? ' new' : ''}</div>`}
    <div class="rows">${rows.map(renderRow)}</div>
  </div>`;
}

const MARKS = { add: '+', del: '-', same: ' ' };

function renderRow({ kind, number, text, part }) {
  if (kind === 'gap' || kind === 'note') return html`<div class="change gap"><span class="number">${kind === 'gap' ? '⋯' : ''}</span><span></span><span class="text">${text}</span></div>`;
  const shown = part && part[1] > part[0]
    ? [text.slice(0, part[0]), html`<mark>${text.slice(...part)}</mark>`, text.slice(part[1])]
    : text;
  return html`<div class=${`change ${kind}`}><span class="number">${number}</span><span class="mark">${MARKS[kind]}</span><span class="text">${shown}</span></div>`;
}

// What is nearly a diff, line by line.
export const colorLines = (text) => text.split(/(?<=\n)/).map((line) => (/^[+-]/.test(line) ? html`<span class=${line[0] === '+' ? 'added' : 'removed'}>${line}</span>` : line));
