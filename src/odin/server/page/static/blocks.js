// The blocks of a conversation, with the marks of the terminal app.

import { Elapsed, Facts, Fold, html, join, linkTo, plural, useEffect, useErrorBoundary, useEvents, useState } from './base.js';
import { getBlob } from './connection.js';
import { Diff } from './diff.js';
import { MarkdownText } from './markdown.js';

const SHORT_LINES = 12;
const LONG_PROMPT = [16, 1500]; // lines, characters
const LIVE_CHARS = 4_000;
const MARKS = { writing: '·', queued: '○', asking: '?', running: '◐', success: '✓', error: '✗', cancelled: '–', denied: '⊘', discarded: '–' };
const TONES = { asking: 'warn', running: 'accent', success: 'good', error: 'bad', cancelled: 'warn', denied: 'warn' };

export function Block({ session, keyName }) {
  useEvents(session, `block:${keyName}`);
  const [error] = useErrorBoundary((problem) => console.error(problem));
  const block = session.find(keyName);
  if (!block) return null;
  // One block that cannot be shown must not take the others with it.
  const [Kind, label] = KINDS[block.kind] ?? KINDS.notice;
  return html`<article class=${`block ${block.kind}`} data-block=${block.kind} data-key=${block.key} data-state=${block.state ?? block.level}
    tabindex="-1" aria-label=${label(block)}>${error ? 'This cannot be shown.' : html`<${Kind} ...${{ block, session, isFolded: session.isFolded(block) }} />`}</article>`;
}

const toggle = (session, block) => () => session.fold(block.key, !session.isFolded(block));

// The first line of a block. It folds the rest, if there is one.
function Head({ block, session, mark, tone = '', name, about, status, isFoldable = true, children }) {
  const words = html`<span class=${`mark ${tone}`} aria-hidden="true">${mark}</span>
    <span class="what"><b>${name}</b>${about ? html` <span class="about">${about}</span>` : ''}</span>
    <span class="status">${status}</span>`;
  return html`<div class="head">${isFoldable ? html`<button class="fold" aria-expanded=${!session.isFolded(block)} onClick=${toggle(session, block)}>${words}</button>`
    : html`<div class="fold">${words}</div>`}${children}</div>`;
}

// A line of its own that hides a text.
const Hidden = ({ block, session, isFolded, children }) => html`
  <${Fold} isFolded=${isFolded} toggle=${toggle(session, block)} tone="dim"><span>${block.status} ${block.live && html`<${Elapsed} since=${block.ts} />`}</span><//>
  ${isFolded ? null : children}`;

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
      <span class="mark" aria-hidden="true">${block.is_mail ? '←' : '›'}</span><p class=${isFolded ? 'clamp' : ''}>${isFolded ? text.slice(0, LONG_PROMPT[1]) : text}</p></div>
    ${isLong && html`<button class="more" aria-expanded=${!isFolded} onClick=${() => session.fold(block.key, !isFolded)}>${isFolded ? `… all ${rest}` : 'Show less'}</button>`}
    <${Remark} text=${join({ ask_mode: 'ask', plan_mode: 'plan' }[block.mode], block.is_injected && 'sent while Odin was working')} />
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
  const { state, status, open_status: openStatus } = block;
  const isOver = !['writing', 'queued', 'asking', 'running'].includes(state);
  const isWhole = session.folds.get(block.key) === false;
  const text = block.view || block.result || '';
  return html`<${Head} ...${{ block, session }} mark=${MARKS[state] ?? '·'} tone=${TONES[state]} name=${block.title || block.name}
      about=${block.about} status=${state === 'running' ? html`${status} <${Elapsed} since=${block.started} />` : isFolded ? status : openStatus} isFoldable=${isOver} />
    ${!isOver ? html`<${Tail} lines=${block.tail} />` : html`
      ${block.remarks.map(([text, isWarning]) => html`<${Remark} key=${text} text=${text} tone=${isWarning && 'warn'} />`)}
      ${isFolded ? null : html`<div class="body" key=${isWhole}>
        ${isWhole && html`<${Arguments} args=${block.args} />`}
        ${isWhole && block.original_args && html`<${Remark} text="the model asked for:" /><${Arguments} args=${block.original_args} />`}
        ${block.is_diff ? html`<${Diff} text=${text} whole=${isWhole} />`
          : block.name === 'Handoff' && block.view ? html`<${MarkdownText} text=${text} />`
          : text.trim() ? html`<${Output} text=${text} isWhole=${isWhole} fromEnd=${state === 'cancelled' && block.duration_ms > 0} />` : null}
        <${Images} ...${{ session, block }} /></div>`}`}`;
}

const Arguments = ({ args }) => html`<${Facts} rows=${Object.entries(args ?? {}).map(([name, value]) => [name, html`<${Output} text=${typeof value === 'string' ? value : JSON.stringify(value)} lines=${3} />`])} />`;

const CommandBlock = ({ block, session, isFolded }) => html`
  <${Head} ...${{ block, session }} mark=${block.live ? '◐' : '!'} tone="accent" name=${block.command} status=${block.live ? html`running <${Elapsed} since=${block.ts} />` : ''} isFoldable=${!block.live} />
  ${block.live ? html`<${Tail} lines=${block.tail} />` : block.output ? html`<${Output} key=${isFolded} text=${block.output} isWhole=${!isFolded} />` : null}`;

function AgentBlock({ block, session, isFolded }) {
  const { key, is_good: isGood, reason, note, answer } = block;
  const isAsking = !reason && block.state === 'waiting_main';
  const [mark, tone] = isGood ? ['✓', 'good'] : isGood === false ? ['✗', 'bad'] : isAsking ? ['?', 'warn'] : reason ? ['•', ''] : ['◐', 'accent'];
  const status = html`${block.status}${reason ? '' : html` <${Elapsed} since=${block.ts} />`}`;
  return html`<${Head} ...${{ block, session, mark, tone, status }} name=${key} about=${block.description || block.task}>
      ${session.isShared ? null : html`<a class="open" href=${linkTo(session.id, key)} aria-label=${`Open the transcript of ${key}`}>Open</a>`}
    <//>
    ${note ? html`<div class=${`note ${isAsking ? 'warn' : ''} ${isFolded ? 'clamp' : ''}`} dir="auto">${note}</div>` : html`<${Remark} text=${block.doing} />`}
    ${isFolded ? null : html`<div class="body"><${Remark} text=${block.description && block.task} />
      ${answer?.trim() && !note?.startsWith(answer) && html`<${MarkdownText} text=${answer} />`}</div>`}`;
}

function ProcessBlock({ block, session, isFolded }) {
  const [mark, tone] = block.is_bad ? ['✗', 'bad'] : block.is_over ? ['■', ''] : ['▶', 'accent'];
  return html`<${Head} ...${{ block, session, mark, tone }} name=${block.key} about=${block.description || block.command} status=${block.status} />
    ${isFolded ? null : html`<div class="body"><${Remark} text=${block.description && block.command} />
      ${block.output?.trim() && html`<${Output} text=${block.output} fromEnd=${!block.is_over} />`}</div>`}`;
}

const Line = ({ mark, tone, text }) => html`<div class=${`line ${tone}`}><span class=${`mark ${tone}`} aria-hidden="true">${mark}</span><span>${text}</span></div>`;

const NoticeBlock = ({ block: { level, text } }) => html`<${Line} mark=${{ warn: '!', error: '✗' }[level] ?? '·'} tone=${{ warn: 'warn', error: 'bad' }[level] ?? 'dim'} text=${text} />`;

const SummaryBlock = ({ block, ...more }) => html`<${Hidden} ...${{ block, ...more }}>
  <div class="body"><${MarkdownText} text=${block.text} /></div><//>`;

function EndBlock({ block }) {
  if (block.error && block.reason !== 'interrupted') return html`<${Line} mark="✗" tone="bad" text=${block.error} /><${Remark} text=${[block.hint, block.next_step].filter(Boolean).join(' ')} />`;
  return block.status && html`<div class=${`line ${block.is_good ? 'dim' : 'warn'}`}><span>${block.status}</span></div>`;
}

const KINDS = {
  prompt: [PromptBlock, () => 'Your prompt'],
  reasoning: [ReasoningBlock, () => 'Reasoning'],
  answer: [AnswerBlock, () => 'Answer'],
  call: [CallBlock, (block) => `${block.title} ${block.about}, ${block.state}`],
  command: [CommandBlock, () => 'Your command'],
  agent: [AgentBlock, ({ key }) => `Sub-agent ${key}`],
  process: [ProcessBlock, ({ key }) => `Background process ${key}`],
  notice: [NoticeBlock, () => 'Notice'],
  summary: [SummaryBlock, () => 'Summary'],
  end: [EndBlock, () => 'End of the turn'],
};

// What a search looks at, and what is copied.
export const readBlock = (block) => [block.title, block.about, block.command, block.description, block.text, block.task, block.answer, block.note,
  block.view || block.result, block.output, block.error, block.explanation].filter(Boolean).join('\n');
