// The blocks of a conversation, with the marks of the terminal app.

import { Elapsed, Facts, Fold, html, linkTo, plural, useEffect, useErrorBoundary, useEvents, useState } from './base.js';
import { getBlob } from './connection.js';
import { Diff } from './diff.js';
import { MarkdownText } from './markdown.js';

const SHORT_LINES = 12;
const LONG_PROMPT = [16, 1500]; // lines, characters
const LIVE_CHARS = 4_000;

export function Block({ session, keyName }) {
  useEvents(session, `block:${keyName}`);
  const [error] = useErrorBoundary((problem) => console.error(problem));
  const block = session.find(keyName);
  if (!block) return null;
  // One block that cannot be shown must not take the others with it.
  const Kind = KINDS[block.kind];
  return html`<article class=${`block ${block.kind}`} data-block=${block.kind} data-key=${block.key} data-state=${block.state ?? block.level}
    tabindex="-1" aria-label=${block.label}>${error ? 'This cannot be shown.' : html`<${Kind} ...${{ block, session, isFolded: session.isFolded(block) }} />`}</article>`;
}

const toggle = (session, block) => () => session.fold(block.key, !session.isFolded(block));

// The first line of a block. It folds the rest, if there is one.
function Head({ block, session, isFolded, children }) {
  const { title, about, since } = block;
  const words = html`<${Mark} ...${block} />
    <span class="what"><b>${title}</b>${about && html` <span class="about">${about}</span>`}</span>
    <span class="status">${isFolded ? block.status : block.open_status ?? block.status}${since > 0 && html` <${Elapsed} since=${since} />`}</span>`;
  return html`<div class="head">${block.is_foldable ? html`<button class="fold" aria-expanded=${!isFolded} onClick=${toggle(session, block)}>${words}</button>`
    : html`<div class="fold">${words}</div>`}${children}</div>`;
}

// A line of its own that hides a text.
const Hidden = ({ block, session, isFolded, children }) => html`
  <${Fold} isFolded=${isFolded} toggle=${toggle(session, block)} tone="dim"><span>${block.status} ${block.live && html`<${Elapsed} since=${block.ts} />`}</span><//>
  ${isFolded ? null : children}`;

const Mark = ({ mark, tone }) => html`<span class=${`mark ${tone}`} aria-hidden="true">${mark}</span>`;
const Remark = ({ text, tone = '' }) => (text ? html`<div class=${`remark ${tone}`} dir="auto">${text}</div>` : null);

// Output: its first lines, or for a cut-off call its last ones, and all of it on request.
function Output({ text, isWhole = false, fromEnd = false, lines = SHORT_LINES }) {
  const [isOpen, setOpen] = useState(isWhole);
  const rows = text.replace(/\n+$/, '').split('\n');
  const left = rows.length - lines;
  if (isOpen || left <= 2) return html`<pre class="output" tabindex=${rows.length > 40 ? 0 : undefined}>${rows.join('\n')}</pre>`;
  const more = html`<button class="more" onClick=${() => setOpen(true)}>… ${plural(left, fromEnd ? 'earlier line' : 'more line')}</button>`;
  const shown = html`<pre class="output">${(fromEnd ? rows.slice(-lines) : rows.slice(0, lines)).join('\n')}</pre>`;
  return fromEnd ? [more, shown] : [shown, more];
}

const Tail = ({ lines }) => (lines?.length ? html`<pre class="output tail">${lines.join('\n')}</pre>` : null);

function BlockImage({ session, block, index, image }) {
  const [url, setUrl] = useState('');
  useEffect(() => {
    if (image.data) { // in a shared copy
      setUrl(`data:${image.media_type};base64,${image.data}`);
      return undefined;
    }
    let made = '';
    const aborter = new AbortController();
    getBlob(`${session.path}/image`, { agent: session.agent, block: block.key, index: String(index) }, aborter.signal).then((blob) => setUrl((made = URL.createObjectURL(blob)))).catch(() => {});
    return () => {
      aborter.abort();
      URL.revokeObjectURL(made);
    };
  }, [block.key, index]);
  const name = image.name || 'Image';
  return html`<a class="image" href=${url || undefined} target="_blank" rel="noopener" title=${name}>
    ${url ? html`<img src=${url} alt=${name} width=${image.width || undefined} height=${image.height || undefined} />` : html`<span class="dim">${name}</span>`}
  </a>`;
}

const Images = ({ session, block }) => (block.images?.length && (!session.isShared || block.images.every((image) => image.data))
  ? html`<div class="images">${block.images.map((image, index) => html`<${BlockImage} key=${index} ...${{ session, block, index, image }} />`)}</div>` : null);

function PromptBlock({ block, session }) {
  const text = block.is_continuation ? '(continued)' : block.text.replace(/\n+$/, '');
  const lines = text.split('\n').length;
  const isLong = lines > LONG_PROMPT[0] || text.length > LONG_PROMPT[1];
  const isFolded = isLong && (session.folds.get(block.key) ?? true);
  const rest = lines > LONG_PROMPT[0] ? plural(lines, 'line') : plural(text.length, 'character');
  return html`<div class=${block.is_mail ? 'words mail' : 'words'}>
      <${Mark} ...${block} /><p class=${isFolded ? 'clamp' : ''}>${isFolded ? text.slice(0, LONG_PROMPT[1]) : text}</p></div>
    ${isLong && html`<button class="more" aria-expanded=${!isFolded} onClick=${() => session.fold(block.key, !isFolded)}>${isFolded ? `… all ${rest}` : 'Show less'}</button>`}
    <${Remark} text=${block.remark} />
    <${Images} ...${{ session, block }} />`;
}

function ReasoningBlock({ block, ...more }) {
  const text = block.text.trim();
  return html`<${Hidden} ...${{ block, ...more }}><div class="thought" dir="auto">${
    block.live && text.length > LIVE_CHARS ? `…${text.slice(-LIVE_CHARS)}` : text || '(no text)'}</div><//>`;
}

const AnswerBlock = ({ block }) => html`<${MarkdownText} text=${block.text} live=${block.live} />
  ${block.interrupted && html`<${Remark} text="– interrupted" tone="warn" />`}`;

function CallBlock({ block, session, isFolded }) {
  const isWhole = session.folds.get(block.key) === false;
  const text = block.view || block.result || '';
  return html`<${Head} ...${{ block, session, isFolded }} />
    ${!block.is_foldable ? html`<${Tail} lines=${block.tail} />` : html`
      ${block.remarks.map(([text, isWarning]) => html`<${Remark} key=${text} text=${text} tone=${isWarning && 'warn'} />`)}
      ${isFolded ? null : html`<div class="body" key=${isWhole}>
        ${isWhole && html`<${Arguments} args=${block.args} />`}
        ${isWhole && block.original_args && html`<${Remark} text="the model asked for:" /><${Arguments} args=${block.original_args} />`}
        ${block.is_diff ? html`<${Diff} text=${text} whole=${isWhole} />`
          : block.name === 'Handoff' && block.view ? html`<${MarkdownText} text=${text} />`
          : text.trim() ? html`<${Output} text=${text} isWhole=${isWhole} fromEnd=${block.state === 'cancelled' && block.duration_ms > 0} />` : null}
        <${Images} ...${{ session, block }} /></div>`}`}`;
}

const Arguments = ({ args }) => html`<${Facts} rows=${Object.entries(args ?? {}).map(([name, value]) => [name, html`<${Output} text=${typeof value === 'string' ? value : JSON.stringify(value)} lines=${3} />`])} />`;

const CommandBlock = ({ block, session, isFolded }) => html`<${Head} ...${{ block, session, isFolded }} />
  ${block.live ? html`<${Tail} lines=${block.tail} />` : block.output ? html`<${Output} key=${isFolded} text=${block.output} isWhole=${!isFolded} />` : null}`;

function AgentBlock({ block, session, isFolded }) {
  const { key, note, answer } = block;
  return html`<${Head} ...${{ block, session, isFolded }}>
      ${session.isShared ? null : html`<a class="open" href=${linkTo(session.id, key)} aria-label=${`Open the transcript of ${key}`}>Open</a>`}
    <//>
    ${note ? html`<div class=${`note ${block.mark === '?' ? 'warn' : ''} ${isFolded ? 'clamp' : ''}`} dir="auto">${note}</div>` : html`<${Remark} text=${block.doing} />`}
    ${isFolded ? null : html`<div class="body"><${Remark} text=${block.description && block.task} />
      ${answer?.trim() && !note?.startsWith(answer) && html`<${MarkdownText} text=${answer} />`}</div>`}`;
}

const ProcessBlock = ({ block, session, isFolded }) => html`<${Head} ...${{ block, session, isFolded }} />
  ${isFolded ? null : html`<div class="body"><${Remark} text=${block.description && block.command} />
    ${block.output?.trim() && html`<${Output} text=${block.output} fromEnd=${!block.ended} />`}</div>`}`;

const LineBlock = ({ block }) => block.line && html`<div class=${`line ${block.tone}`}>${block.mark && html`<${Mark} ...${block} />`}<span>${block.line}</span></div><${Remark} text=${block.remark} />`;

const SummaryBlock = ({ block, ...more }) => html`<${Hidden} ...${{ block, ...more }}>
  <div class="body"><${MarkdownText} text=${block.text} /></div><//>`;

const KINDS = {
  prompt: PromptBlock, reasoning: ReasoningBlock, answer: AnswerBlock, call: CallBlock, command: CommandBlock, agent: AgentBlock, process: ProcessBlock,
  notice: LineBlock, summary: SummaryBlock, end: LineBlock,
};

// What a search looks at, and what is copied.
export const readBlock = (block) => [...new Set([block.title, block.about, block.command, block.description, block.text, block.task, block.answer, block.note,
  block.view || block.result, block.output, block.error, block.explanation])].filter(Boolean).join('\n');
