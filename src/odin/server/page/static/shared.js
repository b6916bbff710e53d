// A shared session: a redacted copy that can only be read.

import { Emitter, html, join, modelName, useEffect, useState, when } from './base.js';
import { Block } from './blocks.js';
import { ask, describe } from './connection.js';

const STEP = 200;

class Copy extends Emitter {
  folds = new Map();
  texts = new Map();
  isShared = true;
  agent = '';
  id = '';

  constructor(blocks) {
    super();
    this.blocks = blocks;
    this.places = new Map(blocks.map((block) => [block.key, block]));
  }

  find(key) {
    return this.places.get(key);
  }

  isFolded(block) {
    return this.folds.get(block.key) ?? block.is_folded ?? ['reasoning', 'summary', 'agent', 'process', 'command'].includes(block.kind);
  }

  fold(key, isFolded) {
    this.folds.set(key, isFolded);
    this.emit(`block:${key}`);
  }
}

export function Shared({ id, secret }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState('');
  const [shown, setShown] = useState(STEP);
  useEffect(() => {
    ask('POST', 'shared', { body: { id, secret }, isPublic: true }).then((copy) => {
      document.title = copy.title || 'Shared session';
      setFound({ ...copy, session: new Copy(copy.blocks) });
    }, (error) => setProblem(describe(error)));
  }, [id, secret]);
  if (problem) return html`<main class="splash" aria-labelledby="problem"><h1 id="problem">This session cannot be shown</h1><p role="alert">${problem}</p></main>`;
  if (!found) return html`<main class="splash" aria-label="Shared session"><p role="status">Loading…</p></main>`;
  const { session } = found;
  return html`<div class="shared">
    <header class="shared-head"><img src="page/icon.svg" alt="" width="28" height="28" />
      <div><h1>${found.title || 'A session'}</h1>
        <p class="dim">${join(found.created && when(found.created), found.model && modelName(found.model), found.expires && `can be read until ${when(found.expires)}`)}</p>
        <p class="dim">This is a redacted copy of a session with Odin Code. It can only be read.</p></div></header>
    <main aria-label="Conversation"><div class="blocks">${session.blocks.slice(0, shown).map(({ key }) => html`<${Block} key=${key} keyName=${key} session=${session} />`)}</div>
      ${shown < session.blocks.length ? html`<button class="more" onClick=${() => setShown(shown + STEP)}>More</button>` : null}</main>
  </div>`;
}
