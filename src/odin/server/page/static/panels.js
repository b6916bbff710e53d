// What is known of a session beside its conversation: tasks, activity, queue, status line, side panel.

import { clip, count, Elapsed, Fold, html, join, linkTo, load, MODES, nextMode, oneLine, plural, save, take, useEffect, useRef, useState } from './base.js';
import { Dialog, toast } from './dialogs.js';
import { Counts } from './diff.js';

const TODO_MARKS = { pending: '○', in_progress: '▸', completed: '✓', cancelled: '✗' };
const wordsOf = (todo) => (todo.status === 'in_progress' && todo.active_form) || todo.content;

function useSignal(name, run) {
  useEffect(() => {
    addEventListener(name, run);
    return () => removeEventListener(name, run);
  });
}

export function TodoPanel({ todos }) {
  const [isFolded, setFolded] = useState(() => load('todos', innerWidth < 700 ? 'folded' : '') === 'folded');
  const toggle = () => { save('todos', isFolded ? 'open' : 'folded'); setFolded(!isFolded); };
  useSignal('odin-todos', toggle);
  if (!todos.length) return null;
  const now = todos.find(({ status }) => status === 'in_progress') ?? todos.find(({ status }) => status === 'pending');
  return html`<section class="todo-panel" aria-label="Tasks">
    <${Fold} ...${{ isFolded, toggle }}><span class="what"><b>Tasks</b> <span class="dim">${todos.filter(({ status }) => status === 'completed').length}/${todos.length}${isFolded ? ': ' : ''}</span>${isFolded && html`<span>${now ? wordsOf(now) : 'all done'}</span>`}</span><//>
    ${isFolded ? null : html`<ul class="todos">${todos.map((todo) => html`<li key=${todo.id} data-state=${todo.status}>
      <span class="mark" aria-hidden="true">${TODO_MARKS[todo.status]}</span><span class="unseen">${todo.status.replace('_', ' ')}: </span><span>${wordsOf(todo)}</span></li>`)}</ul>`}
  </section>`;
}

export function ActivityLine({ state }) {
  const { text, detail, is_busy: isBusy, is_asking: isAsking, is_failure: isFailure, since } = state?.activity ?? {};
  if (!state?.is_working && !isBusy && !isAsking && !isFailure) return null;
  return html`<div class="activity" data-state=${isFailure ? 'failure' : isAsking ? 'asking' : isBusy ? 'busy' : 'idle'}>
    <span class="pulse" aria-hidden="true"></span>
    <span class="what">${text || 'working'}${detail && html` <span class="dim">${detail}</span>`}</span>
    ${isBusy && since > 0 && html`<span class="dim"><${Elapsed} since=${since} /></span>`}
  </div>`;
}

export const StatusLine = ({ parts = [] }) => html`<div class="status-line" role="group" aria-label="Status">${parts.map(([text, tone]) => html`<span key=${text} class=${tone}>${text}</span>`)}</div>`;

const DELIVERIES = { steer: 'into the running turn', merge: 'with the next request' };

export function Queue({ screen }) {
  const { session, state } = screen;
  const node = useRef(null);
  const may = screen.can('prompt');
  useSignal('odin-queue', () => node.current.querySelector('li').focus());
  const act = (op) => screen.act({ agent: session.agent, ...op }).then((done) => done || toast('This prompt has started already.'));
  const makeActions = (prompt, row) => {
    const change = (more) => act({ type: 'ChangePrompt', id: prompt.id, ...more });
    const down = () => row?.nextElementSibling?.focus();
    const up = () => row?.previousElementSibling?.focus();
    const edit = () => screen.composer.current.edit(prompt);
    const drop = () => act({ type: 'DropPrompt', id: prompt.id });
    return {
      ArrowDown: down, j: down, ArrowUp: up, k: up, e: edit, Enter: edit, d: drop, Delete: drop, Escape: screen.write, i: screen.write,
      s: () => change({ delivery: 'steer' }), w: () => change({ delivery: prompt.delivery ?? 'queue' }),
      m: () => change({ mode: nextMode(prompt.mode) }),
    };
  };
  const onKeyDown = (event, prompt) => {
    if (event.target.tagName === 'BUTTON' && ['Enter', ' '].includes(event.key)) return;
    const action = !event.ctrlKey && !event.altKey && !event.metaKey && makeActions(prompt, event.currentTarget)[event.key];
    if (action) take(event, action);
  };
  const button = (words, run, label) => html`<button class="small" aria-label=${label} onClick=${run}>${words}</button>`;
  return html`<section class="queue" aria-label=${plural(state.queue.length, 'queued prompt')}>
    <ol ref=${node}>${state.queue.map((prompt, at) => {
      const { s: steer, w: send, e: edit, d: drop } = makeActions(prompt);
      return html`<li key=${prompt.id} tabindex=${may ? 0 : undefined} onKeyDown=${(event) => may && onKeyDown(event, prompt)}>
        <span class="number">${at + 1}</span>
        <span class="what"><span>${oneLine(prompt.shown, 200)}</span>
          <span class="dim">${join(prompt.mode !== 'edit_mode' && MODES[prompt.mode], prompt.paused ? 'paused' : DELIVERIES[prompt.delivery], prompt.attachments?.length && plural(prompt.attachments.length, 'attachment'))}</span></span>
        ${may && html`<span class="buttons">${prompt.paused ? button('Send', send) : null}${state.executing && prompt.delivery !== 'steer' ? button('Steer', steer) : null}
          ${button('Edit', edit)}${button('Drop', drop, `Drop queued prompt ${at + 1}`)}</span>`}
      </li>`;
    })}</ol>
  </section>`;
}

export const SidePanel = ({ screen }) => html`<aside class="side" aria-label="Side panel"><${Sections} screen=${screen} /></aside>`;

export const Drawer = ({ screen, close }) => html`<${Dialog} title="Side panel" size="drawer" close=${close}>
  <div class="side" onClick=${(event) => event.target.closest('[data-closes]') && close()}><${Sections} screen=${screen} /></div><//>`;

const Section = ({ title, children, more }) => html`<section aria-label=${title}><h2>${title}${more && html` <span class="dim">${more}</span>`}</h2>${children}</section>`;

function Sections({ screen }) {
  const { session, state } = screen;
  if (!state) return null;
  const { agents, files, processes } = state;
  // A row that opens something, and closes the drawer first.
  const row = (line, words, label) => html`<button key=${line} class="row" data-closes aria-label=${label} onClick=${() => screen.run(line)}>${words}</button>`;
  const chip = (name, value, right) => (screen.can(right) ? html`<button class="chip" data-closes onClick=${() => screen.run(`/${name}`)}>${name} <b>${value}</b></button>` : html`<span class="chip">${name} <b>${value}</b></span>`);
  const share = Math.min(state.context_tokens / state.context_limit, 1);
  const asking = agents.filter(({ is_asking: is }) => is).length;
  const running = processes.filter(({ status }) => status === 'running').length;
  return html`
    <${Section} title="Model">
      ${row(screen.can('prompt') ? '/model' : '/status', state.model || 'unknown')}
      <p class="pairs">${chip('effort', state.effort || 'default', 'prompt')}${session.agent ? null : [chip('role', state.role, 'approve'), chip('permissions', state.permission_mode, 'approve')]}</p>
    <//>
    ${state.context_limit > 0 && html`<${Section} title="Context">
      ${row('/context', html`<progress aria-label="Context" class=${share >= 0.8 ? 'warn' : ''} value=${share}></progress> <span>${Math.round(share * 100)}%</span>`, `Context: ${Math.round(share * 100)}% used`)}
      <p class="dim">${count(state.context_tokens)} of ${count(state.context_limit)} tokens</p><//>`}
    ${state.cost && html`<${Section} title="Cost">
      ${row('/usage', state.cost)}
      ${state.budget && html`<p class="dim">${state.budget}</p>`}<//>`}
    ${agents.length > 0 && html`<${Section} title="Agents" more=${asking ? `${asking} waiting for you` : ''}>
      ${session.agent && html`<a class="row" data-closes href=${linkTo(session.id)}>main</a>`}
      ${agents.map((agent) => html`<a key=${agent.id} class="row" data-closes href=${linkTo(session.id, agent.id)} aria-current=${agent.id === session.agent ? 'page' : undefined}>
        <span class=${agent.tone} aria-hidden="true">${agent.mark}</span>
        <span class="what"><b data-color=${agent.color || undefined}>${agent.id}</b> <span>${clip(agent.description, 60)}</span>
          <span class="detail">${join(oneLine(agent.text, 80), agent.context_limit && `context ${Math.round((100 * agent.context_tokens) / agent.context_limit)}%`)}</span></span></a>`)}
      ${row('/agents', html`<span class="dim">stop, steer or close</span>`)}<//>`}
    ${files.length > 0 && html`<${Section} title="Changed files" more=${files.length}>
      ${files.slice(0, 12).map((file) => row(`/diff ${file.path}`, html`<span class="path">${file.path}</span> ${file.is_deleted ? html`<span class="bad">deleted</span>` : file.is_counted ? html`<${Counts} ...${file} />` : null}`))}
      ${row('/diff', html`<span class="dim">${files.length > 12 ? `${files.length - 12} more · ` : ''}all changes</span>`)}<//>`}
    ${processes.length > 0 && html`<${Section} title="Background processes" more=${running || ''}>
      ${processes.slice(0, 6).map((one) => row(`/ps ${one.id}`, html`<span class=${one.tone}>${one.mark}</span>
        <b>${one.id}</b> <span>${clip(one.description || one.command, 60)}</span>`))}<//>`}
    <${Section} title="Project">
      <p class="path">${state.cwd}</p>
      <p class="dim">${join(state.branch, state.sandbox)}</p>
      ${state.warnings.length ? row('/diagnostics', html`<span class="warn">${plural(state.warnings.length, 'warning')}</span>`) : null}
    <//>`;
}
