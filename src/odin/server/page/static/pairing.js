// Pairing: an eight-character code from the machine of the server becomes the token of this browser.

import { html, useEffect, useState } from './base.js';
import { access, describe, post, setToken } from './connection.js';

const CODE = /^#?([A-Z0-9]{4})-?([A-Z0-9]{4})$/i;

export function readCode(text) {
  const found = CODE.exec(text.trim());
  return found ? `${found[1]}-${found[2]}`.toUpperCase() : '';
}

export function Pairing({ code }) {
  const [text, setText] = useState(code);
  const [problem, setProblem] = useState(access.reason ?? '');
  const [isBusy, setBusy] = useState(Boolean(code));

  const pair = async (wanted) => {
    if (!wanted) {
      setProblem('A code has eight letters and digits, such as K7PX-2MQ4.');
      return;
    }
    setBusy(true);
    setProblem('');
    try {
      const { token } = await post('pair', { code: wanted });
      setToken(token);
    } catch (error) {
      setProblem(describe(error));
      setBusy(false);
    }
    // The code must not stay in the history.
    history.replaceState(null, '', `${location.pathname}${location.search}#/`);
    dispatchEvent(new HashChangeEvent('hashchange'));
  };
  useEffect(() => {
    if (code) pair(code);
  }, [code]);

  return html`<main class="pairing" aria-labelledby="pair-title">
    <div class="card">
      <img src="page/icon.svg" alt="" width="56" height="56" />
      <h1 id="pair-title">Pair this browser</h1>
      <p>On the computer where the server runs, enter</p>
      <p class="shell"><code>odin pair</code></p>
      <p>and type the code that it shows, or scan its QR code.</p>
      <form class="stack" onSubmit=${() => pair(readCode(text))}>
        <label>Code<input class="code-input" autocomplete="one-time-code" autocapitalize="characters" maxlength="9" placeholder="XXXX-XXXX"
          value=${text} disabled=${isBusy} aria-invalid=${Boolean(problem)} aria-describedby="pair-problem"
          onInput=${(event) => setText(event.target.value.toUpperCase())} /></label>
        <p id="pair-problem" class="bad" role="alert">${problem}</p>
        <button class="primary" disabled=${isBusy}>${isBusy ? 'Pairing…' : 'Pair'}</button>
      </form>
    </div>
  </main>`;
}
