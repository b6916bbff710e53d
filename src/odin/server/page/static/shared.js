// A shared session: a redacted copy that can only be read.

import { html, join, modelName, useLoaded, useMemo, when } from './base.js';
import { Block } from './blocks.js';
import { ask, describe } from './connection.js';
import { Session } from './session.js';

export function Shared({ id, secret }) {
  const [found, problem] = useLoaded(() => ask('POST', 'shared', { body: { id, secret }, isPublic: true }), []);
  const session = useMemo(() => found && Session.ofCopy(found.blocks), [found]);
  document.title = found?.title || 'Shared session';
  if (!found) {
    return html`<main class="splash" aria-label="Shared session">${problem ? html`<h1>This session cannot be shown</h1><p role="alert">${describe(problem)}</p>` : html`<p role="status">Loading…</p>`}</main>`;
  }
  return html`<div class="shared">
    <header class="shared-head"><img src="page/icon.svg" alt="" width="28" height="28" />
      <div><h1>${found.title || 'A session'}</h1>
        <p class="dim">${join(found.created && when(found.created), found.model && modelName(found.model), found.expires && `can be read until ${when(found.expires)}`)}</p>
        <p class="dim">This is a redacted copy of a session with Odin Code. It can only be read.</p></div></header>
    <main aria-label="Conversation"><div class="blocks">${session.blocks.map(({ key }) => html`<${Block} key=${key} keyName=${key} session=${session} />`)}</div></main>
  </div>`;
}
