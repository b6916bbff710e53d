// The store of one transcript: the loaded blocks and the state, as the server sends them.
//
// Changes are applied at once and told once per animation frame: `state`, `blocks` (blocks came or went), `block:KEY`.

import { Emitter, load, save } from './base.js';
import { Failure, get, readEvents, submit } from './connection.js';

const PAUSES_MS = [200, 1000, 2000, 4000, 8000];
const CLOSED_MS = 3000;
const TURN_OPS = ['Interrupt', 'SetMode', 'MoveToBackground'];

export class Session extends Emitter {
  blocks = [];
  first = 0;
  state = null;
  link = 'connecting'; // then live, reconnecting, closed
  problem = null;
  folds = new Map();
  answered = new Set();
  #places = new Map();
  #touched = new Set();
  #frame = 0;
  #aborter = new AbortController();
  #wake = () => {};
  #loading = null;

  constructor(id, agent = '') {
    super();
    this.id = id;
    this.agent = agent;
  }

  // A session that stays as it is, with everything at hand.
  static ofCopy(blocks) {
    const session = new Session('');
    Object.assign(session, { blocks, isShared: true });
    session.#index();
    return session;
  }

  get path() {
    return `sessions/${this.id}`;
  }

  get last() {
    return this.first + this.blocks.length;
  }

  find(key) {
    const at = this.#places.get(key);
    return at === undefined ? null : this.blocks[at];
  }

  open() {
    const wake = () => this.#wake();
    addEventListener('online', wake, { signal: this.#aborter.signal });
    document.addEventListener('visibilitychange', () => {
      if (document.hidden && this.#frame) this.#flush();
      wake();
    }, { signal: this.#aborter.signal });
    this.#follow();
  }

  close() {
    this.#aborter.abort();
    this.#wake();
    cancelAnimationFrame(this.#frame);
  }

  async #follow() {
    const { signal } = this.#aborter;
    for (let round = 0; !signal.aborted; round++) {
      let wasClosed = false;
      try {
        for await (const [name, data] of readEvents(`${this.path}/view`, { agent: this.agent }, signal)) {
          if (signal.aborted) return;
          if (name === 'start') this.#start(data);
          else if (name === 'change' && !this.#change(data)) break;
          else if (name === 'resync') break;
          else if (name === 'closed') wasClosed = true;
          round = 0;
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Failure && !error.isOffline && error.status < 500 && error.status !== 429) {
          this.problem = error;
          this.#setLink('closed');
          return;
        }
      }
      if (signal.aborted) return;
      this.#setLink(this.state ? 'reconnecting' : 'connecting');
      const pause = wasClosed ? CLOSED_MS : PAUSES_MS[Math.min(round, PAUSES_MS.length - 1)];
      await this.#pause(pause * (0.75 + Math.random() / 2));
    }
  }

  #pause(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.#wake = () => {
        if (document.hidden && !this.#aborter.signal.aborted) return;
        clearTimeout(timer);
        done();
      };
    });
  }

  #setLink(link) {
    if (link === this.link) return;
    this.link = link;
    this.emit('link');
  }

  #start({ first, blocks, state }) {
    const at = first - this.first;
    const isSame = at > 0 && at < this.blocks.length && this.blocks[at].key === blocks[0]?.key;
    this.blocks = isSame ? [...this.blocks.slice(0, at), ...blocks] : blocks;
    if (!isSame) this.first = first;
    this.state = state;
    this.problem = null;
    this.#index();
    for (const block of blocks) this.#touched.add(`block:${block.key}`);
    this.#touch('blocks', 'state');
    this.#setLink('live');
  }

  // False if the change is about blocks before the loaded ones.
  #change({ state, splice = [], blocks = [] }) {
    if (state) {
      this.state = { ...this.state, ...state };
      this.#touch('state');
    }
    for (const [at, removed, added] of splice) {
      if (at < this.first) return false;
      const place = at - this.first;
      if (place === this.blocks.length) {
        added.forEach((block, number) => this.#places.set(block.key, place + number));
        this.blocks.push(...added);
      } else {
        this.blocks.splice(place, removed, ...added);
        this.#index();
      }
      for (const block of added) this.#touched.add(`block:${block.key}`);
      this.#touch('blocks');
    }
    for (const { key, set, append } of blocks) {
      const at = this.#places.get(key);
      if (at === undefined) continue;
      const block = { ...this.blocks[at], ...set };
      for (const [name, more] of Object.entries(append ?? {})) block[name] = (block[name] ?? '') + more;
      this.blocks[at] = block;
      this.#touch(`block:${key}`);
    }
    return true;
  }

  #index() {
    this.#places.clear();
    this.blocks.forEach((block, at) => this.#places.set(block.key, at));
  }

  #touch(...names) {
    for (const name of names) this.#touched.add(name);
    // A hidden tab has no frames, but its title and notifications go on.
    if (!this.#frame) this.#frame = document.hidden ? setTimeout(() => this.#flush(), 200) : requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    this.#frame = 0;
    const touched = this.#touched;
    this.#touched = new Set();
    for (const name of touched) this.emit(name);
    if ([...touched].some((name) => name.startsWith('block'))) this.emit('content');
    this.emit('flush');
  }

  // Loads the blocks before those that are loaded, and calls `prepare` before they are there; false if it cannot.
  loadEarlier(prepare = () => {}, limit = 400) {
    this.#loading ??= get(`${this.path}/blocks`, { agent: this.agent, end: this.first, limit })
      .then(({ first, blocks }) => {
        if (first + blocks.length !== this.first) return false;
        prepare();
        this.blocks = [...blocks, ...this.blocks];
        this.first = first;
        this.#index();
        this.emit('blocks');
        return true;
      })
      .finally(() => { this.#loading = null; });
    return this.#loading;
  }

  // Keeps the newest blocks.
  forgetEarlier(count) {
    const gone = this.blocks.length - count;
    this.blocks = this.blocks.slice(gone);
    this.first += gone;
    this.#index();
    this.emit('blocks');
  }

  submit(op) {
    return submit(this.id, op, TURN_OPS.includes(op.type) ? this.state?.turn : '');
  }

  answer(answer) {
    this.answered.add(answer.id);
    return this.submit({ type: 'Answer', ...answer }).catch((error) => {
      this.answered.delete(answer.id);
      throw error;
    });
  }

  isFolded(block) {
    return this.folds.get(block.key) ?? block.is_folded;
  }

  fold(key, isFolded) {
    this.folds.set(key, isFolded);
    this.emit(`block:${key}`);
  }

  foldAll(isFolded) {
    for (const block of this.blocks) this.folds.set(block.key, isFolded);
    for (const block of this.blocks) this.emit(`block:${block.key}`);
  }

  get draft() {
    return load(`draft:${this.id}:${this.agent}`);
  }

  set draft(text) {
    save(`draft:${this.id}:${this.agent}`, text);
  }

  get mode() {
    return load(`mode:${this.id}`, 'edit_mode');
  }

  set mode(mode) {
    save(`mode:${this.id}`, mode);
    this.emit('mode');
  }
}
