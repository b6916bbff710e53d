// The blocks of a conversation, one component for each kind, with the marks and words of the terminal app.

import {
  count, duration, Elapsed, html, join, modelName, plural, seconds, usd, useEffect, useErrorBoundary, useEvents, useState,
} from './base.js';
import { getBlob } from './connection.js';
import { Diff } from './diff.js';
import { Markdown, MarkdownText } from './markdown.js';

const SHORT_LINES = 12;
const LIVE_CHARS = 4_000;
const STATE_MARKS = { writing: '·', queued: '○', asking: '?', running: '◐', success: '✓', error: '✗', cancelled: '–', denied: '⊘', discarded: '–' };

export function Block({ session, keyName }) {
  useEvents(session, `block:${keyName}`);
  const [error] = useErrorBoundary((problem) => console.error(problem));
  const block = session.find(keyName);
  if (!block) return null;
  // One block that cannot be shown must not take the others with it.
  const Kind = error ? () => 'This cannot be shown.' : KINDS[block.kind] ?? NoticeBlock;
  const label = describeBlock(block);
  return html`<article class=${`block ${block.kind}`} data-block=${block.kind} data-key=${block.key} data-state=${block.state ?? block.level}
    tabindex="-1" aria-label=${label}><${Kind} block=${block} session=${session} /></article>`;
}

const describeBlock = (block) => ({
  prompt: 'Your prompt', reasoning: 'Reasoning', answer: 'Answer', command: 'Your command', agent: `Sub-agent ${block.key}`,
  process: `Background process ${block.key}`, notice: 'Notice', summary: 'Summary', end: 'End of the turn',
}[block.kind] ?? `${block.title ?? block.name} ${block.about ?? ''}, ${block.state}`);

// The first line of a block that can be folded.
function Head({ block, session, mark, tone = '', name, about, status, isFoldable = true, children }) {
  const isFolded = session.isFolded(block);
  const words = html`<span class=${`mark ${tone}`} aria-hidden="true">${mark}</span>
    <span class="what"><b>${name}</b>${about ? html` <span class="about" dir="auto">${about}</span>` : ''}</span>
    <span class="status">${status}</span>`;
  return html`<div class="head">
    ${isFoldable
      ? html`<button class="fold" aria-expanded=${!isFolded} onClick=${() => session.fold(block.key, !isFolded)}>${words}</button>`
      : html`<div class="fold">${words}</div>`}
    ${children}
  </div>`;
}

// Output: its first lines, or for a cut-off call its last ones, and all of it on request.
export function Output({ text, isWhole = false, fromEnd = false, lines = SHORT_LINES }) {
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
    let made = '';
    const aborter = new AbortController();
    getBlob(`${session.path}/image`, { agent: session.agent, block: block.key, index: String(index) }, aborter.signal)
      .then((blob) => setUrl((made = URL.createObjectURL(blob))))
      .catch(() => {});
    return () => {
      aborter.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [block.key, index]);
  const name = image.name || 'Image';
  return html`<a class="image" href=${url || undefined} target="_blank" rel="noopener" title=${name}>
    ${url ? html`<img src=${url} alt=${name} width=${image.width || undefined} height=${image.height || undefined} />` : html`<span class="dim">${name}</span>`}
  </a>`;
}

const Images = ({ session, block }) => (block.images?.length && !session.isShared
  ? html`<div class="images">${block.images.map((image, index) => html`<${BlockImage} key=${index} ...${{ session, block, index, image }} />`)}</div>`
  : null);

const PROMPT_LINES = 16;

function PromptBlock({ block, session }) {
  const text = block.is_continuation ? '(continued)' : block.text.replace(/\n+$/, '');
  const rows = text.split('\n');
  const isLong = rows.length > PROMPT_LINES || text.length > 1500;
  const isFolded = isLong && (session.folds.get(block.key) ?? true);
  const remark = join({ ask_mode: 'ask', plan_mode: 'plan' }[block.mode], block.is_injected && 'sent while Odin was working');
  const shown = !isFolded ? text : rows.length > PROMPT_LINES
    ? [...rows.slice(0, 5), `[… ${plural(rows.length - 10, 'more line')} …]`, ...rows.slice(-5)].join('\n').slice(0, 3000)
    : `${text.slice(0, 900)} [… ${plural(text.length - 1200, 'more character')} …] ${text.slice(-300)}`;
  return html`<div class=${block.is_mail ? 'words mail' : 'words'}>
      <span class="mark" aria-hidden="true">${block.is_mail ? '←' : '›'}</span><p>${shown}</p>
    </div>
    ${isLong ? html`<button class="more" aria-expanded=${!isFolded} onClick=${() => session.fold(block.key, !isFolded)}>${isFolded ? 'Show all' : 'Show less'}</button>` : null}
    ${remark ? html`<div class="remark">${remark}</div>` : null}
    <${Images} ...${{ session, block }} />`;
}

function ReasoningBlock({ block, session }) {
  const isFolded = session.isFolded(block);
  const text = block.text.trim();
  const took = block.seconds;
  const words = block.live ? html`Thinking… <${Elapsed} since=${block.ts} />`
    : !(took > 0) ? 'Thought' : took < 1 ? 'Thought for less than a second' : `Thought for ${seconds(Math.round(took))}`;
  return html`<button class="fold dim" aria-expanded=${!isFolded} onClick=${() => session.fold(block.key, !isFolded)}>
      <span class="mark" aria-hidden="true">${isFolded ? '▸' : '▾'}</span> <span>${words}</span></button>
    ${isFolded ? null : html`<div class="thought" dir="auto">${
      block.live && text.length > LIVE_CHARS ? `…${text.slice(-LIVE_CHARS)}` : text || '(no text)'}</div>`}`;
}

function AnswerBlock({ block, session }) {
  let parsed = session.texts.get(block.key);
  if (!parsed) session.texts.set(block.key, (parsed = new Markdown()));
  return html`<${MarkdownText} key=${block.key} text=${block.text} live=${block.live} parsed=${parsed} />
    ${block.interrupted ? html`<div class="remark warn">– interrupted</div>` : null}`;
}

const isOver = ({ state }) => !['writing', 'queued', 'asking', 'running'].includes(state);

function describeCall(block, isFolded) {
  const took = block.duration_ms >= 100 ? duration(block.duration_ms / 1000) : '';
  switch (block.state) {
    case 'writing': return join('writing', block.chars ? `${count(block.chars)} chars` : '');
    case 'queued': return 'queued';
    case 'asking': return 'waiting for your answer';
    case 'running': return html`running <${Elapsed} since=${block.started} />${block.is_speculative ? ' · early' : ''}`;
    case 'success': return join(isFolded || block.note ? block.outcome : '', took, block.background && 'continues in the background');
    case 'error': return join('failed', isFolded ? block.outcome : '', took);
    case 'cancelled': return join('cancelled', took);
    default: return block.state;
  }
}

const TONES = { asking: 'warn', running: 'accent', success: 'good', error: 'bad', cancelled: 'warn', denied: 'warn' };

function CallBlock({ block, session }) {
  const over = isOver(block);
  const isFolded = session.isFolded(block);
  const isWhole = session.folds.get(block.key) === false;
  const isRefused = ['denied', 'discarded'].includes(block.state) && block.explanation;
  return html`<${Head} ...${{ block, session }} mark=${STATE_MARKS[block.state] ?? '·'} tone=${TONES[block.state] ?? ''} name=${block.title || block.name}
      about=${block.about} status=${describeCall(block, isFolded)} isFoldable=${over} />
    ${isRefused ? html`<div class="remark warn" dir="auto">${block.explanation}</div>` : null}
    ${over ? null : html`<${Tail} lines=${block.tail} />`}
    ${over && block.for_user ? html`<div class="remark warn" dir="auto">${block.for_user}</div>` : null}
    ${over && block.aside ? html`<div class="remark" dir="auto">${block.aside}</div>` : null}
    ${over && block.changed_by ? html`<div class="remark warn" dir="auto">Arguments changed by ${block.changed_by === 'user' ? 'you' : block.changed_by}.</div>` : null}
    ${over && block.redacted?.length ? html`<div class="remark warn" dir="auto">Redacted from the result: ${block.redacted.join(', ')}.</div>` : null}
    ${over && !isFolded ? html`<${CallBody} ...${{ block, session, isWhole }} />` : null}`;
}

function CallBody({ block, session, isWhole }) {
  const shown = block.view || block.result || '';
  const wasCutOff = block.state === 'cancelled' && block.duration_ms > 0;
  return html`<div class="body">
    ${isWhole ? html`<${Arguments} args=${block.args} />` : null}
    ${isWhole && block.original_args ? html`<div class="remark">the model asked for:</div><${Arguments} args=${block.original_args} />` : null}
    ${block.is_diff ? html`<${Diff} key=${isWhole} text=${shown} whole=${isWhole} />`
      : block.name === 'Handoff' && block.view ? html`<${MarkdownText} text=${shown} />`
      : shown.trim() ? html`<${Output} key=${isWhole} text=${shown} isWhole=${isWhole} fromEnd=${wasCutOff} />` : null}
    <${Images} ...${{ session, block }} />
  </div>`;
}

function Arguments({ args }) {
  return html`<dl class="args">${Object.entries(args ?? {}).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return html`<div key=${name}><dt>${name}</dt><dd><${Output} text=${text} lines=${3} /></dd></div>`;
  })}</dl>`;
}

function CommandBlock({ block, session }) {
  const isFolded = session.isFolded(block);
  return html`<${Head} ...${{ block, session }} mark=${block.live ? '◐' : '!'} tone="accent" name=${block.command}
      status=${block.live ? html`running <${Elapsed} since=${block.ts} />` : ''} isFoldable=${!block.live} />
    ${block.live ? html`<${Tail} lines=${block.tail} />` : block.output ? html`<${Output} key=${isFolded} text=${block.output} isWhole=${!isFolded} />` : null}`;
}

function AgentBlock({ block, session }) {
  const isFolded = session.isFolded(block);
  const isEnded = Boolean(block.reason) && !(block.task_id && !['completed', 'failed', 'cancelled'].includes(block.state));
  const isAsking = !block.reason && block.state === 'waiting_main';
  const [mark, tone] = isEnded ? (block.is_good ? ['✓', 'good'] : ['✗', 'bad']) : isAsking ? ['?', 'warn'] : block.reason ? ['•', ''] : ['◐', 'accent'];
  const rest = join(block.calls && plural(block.calls, 'call'), block.denied && `${block.denied} denied`,
    !block.key.startsWith(`${block.type}-`) && block.type, block.model && modelName(block.model));
  const took = block.reason ? duration(block.ended - block.ts) : html`<${Elapsed} since=${block.ts} isOn=${!block.reason} />`;
  const status = html`${block.state_text} ${took}${rest ? ` · ${rest}` : ''}`;
  const task = block.description || block.task;
  return html`<${Head} ...${{ block, session, mark, tone, status }} name=${block.key} about=${task}>
      ${session.isShared ? null : html`<a class="open" href=${`#/s/${session.id}/${encodeURIComponent(block.key)}`} aria-label=${`Open the transcript of ${block.key}`}>Open</a>`}
    <//>
    ${block.doing && !block.note ? html`<div class="remark" dir="auto">${block.doing}</div>` : null}
    ${block.note ? html`<div class=${`note ${isAsking ? 'warn' : ''} ${isFolded ? 'clamp' : ''}`} dir="auto">${block.note}</div>` : null}
    ${isFolded ? null : html`<div class="body">
      ${block.description ? html`<div class="remark" dir="auto">${block.task}</div>` : null}
      ${block.answer?.trim() && !block.note?.startsWith(block.answer) ? html`<${MarkdownText} text=${block.answer} />` : null}
    </div>`}`;
}

function ProcessBlock({ block, session }) {
  const isFolded = session.isFolded(block);
  const isBad = ['failed', 'timed_out'].includes(block.status);
  return html`<${Head} ...${{ block, session }} mark=${isBad ? '✗' : block.status ? '■' : '▶'} tone=${isBad ? 'bad' : block.status ? '' : 'accent'}
      name=${block.key} about=${block.description || block.command} status=${block.state_text} />
    ${isFolded ? null : html`<div class="body">
      ${block.description ? html`<div class="remark" dir="auto">${block.command}</div>` : null}
      ${block.output?.trim() ? html`<${Output} text=${block.output} fromEnd=${!block.status} />` : null}
    </div>`}`;
}

function NoticeBlock({ block }) {
  const [mark, tone] = { warn: ['!', 'warn'], error: ['✗', 'bad'] }[block.level] ?? ['·', 'dim'];
  return html`<div class=${`line ${tone}`}><span class="mark" aria-hidden="true">${mark}</span><span dir="auto">${block.text}</span></div>`;
}

function SummaryBlock({ block, session }) {
  const isFolded = session.isFolded(block);
  return html`<button class="fold dim" aria-expanded=${!isFolded} onClick=${() => session.fold(block.key, !isFolded)}>
      <span class="mark" aria-hidden="true">${isFolded ? '▸' : '▾'}</span>
      <span>Conversation compacted: ${count(block.tokens_before)} → ${count(block.tokens_after)} tokens</span></button>
    ${isFolded ? null : html`<div class="body"><${MarkdownText} text=${block.text} /></div>`}`;
}

function EndBlock({ block }) {
  if (block.error && block.reason !== 'interrupted') {
    return html`<div class="line bad"><span class="mark" aria-hidden="true">✗</span><span dir="auto">${block.error}</span></div>
      ${block.hint || block.next_step ? html`<div class="remark" dir="auto">${[block.hint, block.next_step].filter(Boolean).join(' ')}</div>` : null}`;
  }
  const reason = block.reason_text;
  const words = join(reason, block.duration_ms >= 1000 && duration(block.duration_ms / 1000), block.cost_usd > 0 && usd(block.cost_usd));
  return words ? html`<div class=${`line ${reason ? 'warn' : 'dim'}`}><span>${words}</span></div>` : null;
}

const KINDS = {
  prompt: PromptBlock, reasoning: ReasoningBlock, answer: AnswerBlock, call: CallBlock, command: CommandBlock, agent: AgentBlock,
  process: ProcessBlock, notice: NoticeBlock, summary: SummaryBlock, end: EndBlock,
};

// What a search looks at, and what is copied.
export const readBlock = (block) => [block.title, block.about, block.command, block.description, block.text, block.task, block.answer, block.note,
  block.view || block.result, block.output, block.error, block.explanation].filter(Boolean).join('\n');
