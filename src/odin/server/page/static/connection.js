// The server: requests with the token of this browser, ops that are safe to repeat, and event streams.

import { Emitter, load, randomId, save } from './base.js';

const BASE = new URL('..', import.meta.url);
const TOKEN = `token:${BASE.pathname}`;
const SILENCE_MS = 30_000;

// Tells of a new `token`; `reason` is why there is none any more.
export const access = new Emitter();
let run = '';

export class Failure extends Error {
  constructor(error, { hint = '', status = 0 } = {}) {
    super(error);
    Object.assign(this, { hint, status });
  }

  get isOffline() {
    return this.status === 0;
  }
}

export const describe = ({ message, hint }) => [message, hint].filter(Boolean).join(' ');
export const getToken = () => load(TOKEN);

export function setToken(token, reason = '') {
  save(TOKEN, token);
  access.reason = reason;
  access.emit('token', token);
}

async function open(method, path, { body, query, signal, isPublic, headers } = {}) {
  const url = new URL(path.replace(/^\//, ''), BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== '') url.searchParams.set(name, value);
  }
  const token = getToken();
  let response;
  try {
    response = await fetch(url, {
      method,
      signal,
      cache: 'no-store',
      credentials: 'omit',
      headers: {
        ...(isPublic ? {} : { authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure('The server cannot be reached.');
  }
  run = response.headers.get('odin-run') ?? run;
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  // Another tab may have paired again meanwhile.
  const failure = new Failure(problem.error ?? `The server answered with ${response.status}.`, { ...problem, status: response.status });
  if (response.status === 401 && !isPublic && token && token === getToken()) setToken('', describe(failure));
  throw failure;
}

export async function ask(method, path, options) {
  const response = await open(method, path, options);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, query, signal) => ask('GET', path, { query, signal });
export const post = (path, body = {}) => ask('POST', path, { body });
export const getBlob = async (path, query, signal) => (await open('GET', path, { query, signal })).blob();

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// An op has an id, so the server carries it out once however often it is repeated.
export async function submit(session, op, turn = '') {
  const request = { id: randomId(), op, turn };
  const sentTo = run;
  for (let round = 1; ; round++) {
    try {
      const headers = sentTo ? { 'odin-run': sentTo } : {};
      return await ask('POST', `sessions/${session}/ops`, { body: request, headers });
    } catch (error) {
      if (!error.isOffline || round === 5) throw error;
      await sleep(300 * 2 ** round);
    }
  }
}

// Yields [name, data] of server-sent events; ends when the server does, or is silent.
export async function* readEvents(path, query, signal) {
  const aborter = new AbortController();
  const stop = () => aborter.abort();
  signal.addEventListener('abort', stop);
  let timer = 0;
  const restart = () => {
    clearTimeout(timer);
    timer = setTimeout(stop, SILENCE_MS);
  };
  restart();
  try {
    const response = await open('GET', path, { query, signal: aborter.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      restart();
      rest += value;
      let start = 0;
      for (let end; (end = rest.indexOf('\n\n', start)) >= 0; start = end + 2) {
        const [, name, data] = /^event: *(.*)\ndata: *(.*)/m.exec(rest.slice(start, end)) ?? [];
        if (name) yield [name, JSON.parse(data)];
      }
      rest = rest.slice(start);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
    aborter.abort();
  }
}

