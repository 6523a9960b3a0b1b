/**
 * The page of LockBoardModule. Texts from the store are set as text only, never as HTML. Rows keep their elements from
 * one state to the next, so that nothing moves that has not changed, and selections and the focus stay.
 */

const byId = (id) => document.getElementById(id);

/** Returns a new element with these attributes and contents. A string is a text. */
function create(tag, attributes = {}, ...contents) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...contents);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** What changes the order of a text, or cannot be seen in it. */
const UNSEEN = /[\p{Cc}\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

/** The text of a key, with characters that could make it look like another key as their numbers. */
const visible = (text) =>
  text.replace(
    UNSEEN,
    (character) => `‹U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}›`,
  );

const seconds = (ms) => Math.max(0, Math.round(ms / 1000));

/** 42 s, 3 min 5 s, 2 h 14 min, 3 d 4 h. */
function duration(ms) {
  const s = seconds(ms);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const clockTime = (ms) => new Date(ms).toLocaleTimeString(undefined, { hour12: false });
const dateTime = (value) => new Date(value).toLocaleString();

/* ---- State: the connection, the store, and how old it is what the page shows ---- */

const about = { namespace: '', instance: '', backend: '', actions: 'read' };
let connection = { state: 'connecting', text: 'Connecting …' };
let store;
let lastHeardMs = Date.now();

function showState() {
  const isLive = connection.state === 'live';
  const shown = isLive && store ? storeState(store) : connection;
  const label = byId('state');
  label.parentElement.dataset.state = shown.state;
  setText(label, shown.text);
  setText(byId('store'), isLive && store ? storeLine(store) : '');
  setText(byId('namespace'), about.namespace);
  setText(byId('replica'), about.instance && `of ${about.instance}`);
  const mark = shown.state === 'live' ? '' : '⚠ ';
  document.title = `${mark}Locks${about.namespace && ` · ${about.namespace}`}`;
  const isStale = !isLive || store?.status === 'down';
  for (const section of document.querySelectorAll('section')) section.dataset.stale = String(isStale);
}

function storeState({ status, message, servers, voting, needed }) {
  if (status === 'down') return { state: 'down', text: `Store down. ${message} ${asOf()}` };
  if (status === 'up') return { state: 'live', text: 'Live' };
  return {
    state: 'degraded',
    text: `Degraded: ${voting} of ${servers} servers count, ${needed} are needed`,
  };
}

function storeLine({ status, latencyMs, away = [] }) {
  const latency = status === 'down' ? '' : ` answers in ${latencyMs.toFixed(1)} ms`;
  return [`${about.backend}${latency}`, ...away].join(' · ');
}

/** When the store, or the server, was last known to be well. */
const asOf = () => `Below is what was known at ${clockTime(lastHeardMs)}.`;

function setConnection(state, text) {
  connection = { state, text };
  showState();
}

/* ---- Stream: server-sent events by fetch, because EventSource hides the status 401 ---- */

const SILENCE_MS = 10_000;
const MIN_PAUSE_MS = 250;
const MAX_PAUSE_MS = 10_000;
const REFUSED_PAUSE_MS = 30_000;

const initial = new URLSearchParams(location.search);
const view = { prefix: initial.get('prefix') ?? '', cursor: '', earlier: [] };
let stream;
let retryTimer;
let failures = 0;

function connect() {
  clearTimeout(retryTimer);
  stream?.abort();
  stream = undefined;
  // A hidden page costs nothing.
  if (document.hidden) return setConnection('connecting', `Paused. ${asOf()}`);
  stream = new AbortController();
  void read(stream);
}

async function read(own) {
  let pauseMs = MIN_PAUSE_MS;
  try {
    await follow(own);
    failures = 0;
  } catch (error) {
    if (own !== stream) return;
    // After a silence, what is shown is already old.
    failures += own.signal.aborted ? 2 : 1;
    pauseMs = error.pauseMs ?? Math.min(MIN_PAUSE_MS * 2 ** failures, MAX_PAUSE_MS);
    const text = error.pauseMs ? error.message : `Connection lost. Reconnecting … ${asOf()}`;
    // The first failure may be the end of one replica, while another is there at once.
    if (failures > 1 || error.pauseMs) setConnection(error.pauseMs ? 'refused' : 'disconnected', text);
  }
  if (own === stream) retryTimer = setTimeout(connect, pauseMs);
}

async function follow(own) {
  let watchdog;
  const restartWatchdog = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => own.abort(), SILENCE_MS);
  };
  restartWatchdog();
  try {
    const url = new URL('stream', import.meta.url);
    if (view.prefix) url.searchParams.set('prefix', view.prefix);
    if (view.cursor) url.searchParams.set('cursor', view.cursor);
    const response = await fetch(url, { signal: own.signal, cache: 'no-store', redirect: 'manual' });
    requireStream(response);
    let text = '';
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      restartWatchdog();
      const blocks = (text + value).split('\n\n');
      text = blocks.pop();
      for (const block of blocks) if (own === stream) receive(block);
    }
  } finally {
    clearTimeout(watchdog);
  }
}

function requireStream({ status, headers }) {
  if (headers.get('content-type')?.startsWith('text/event-stream')) return;
  const isRefused = meansRefusal(status);
  const message = isRefused
    ? `Access refused (${status || 'redirected'}). Sign in again and reload this page.`
    : `The server answers ${status}.`;
  throw Object.assign(new Error(message), isRefused && { pauseMs: REFUSED_PAUSE_MS });
}

/** A redirect, which has the status 0 here, leads to a page to sign in, and so may an answer without an error. */
const meansRefusal = (status) => status === 401 || status === 403 || status < 400;

function receive(block) {
  // Not a dot: a key may contain U+2028, and for a dot that is the end of a line.
  const [, topic, json] = /^event: ([^\n]*)\ndata: ([^\n]*)$/.exec(block) ?? [];
  if (topic) show[topic]?.(JSON.parse(json));
}

const show = {
  hello(fields) {
    Object.assign(about, fields);
    document.body.dataset.actions = about.actions;
    failures = 0;
    setConnection('live', 'Live');
  },
  store(fields) {
    store = fields;
    if (store.status !== 'down') lastHeardMs = Date.now();
    showState();
  },
  locks(page) {
    if (page.prefix === view.prefix && (page.cursor ?? '') === view.cursor) showLocks(page);
  },
  jobs: ({ jobs, nowMs }) => showRows('jobs', jobs, { create: createJob, nowMs, none: 'No jobs.' }),
  leaders: ({ leaders, nowMs }) =>
    showRows('leaders', leaders, { create: createLeader, nowMs, none: 'No elections.' }),
  events: ({ events }) => showEvents(events),
};

/* ---- Locks ---- */

const table = byId('lock-table');
const body = table.tBodies[0];
const rows = new Map();
const sort = { by: 'age', isDescending: true };
let page;

const SORT_VALUES = {
  key: ({ key }) => key,
  age: ({ since }) => -Date.parse(since),
  waiting: waitersOf,
};

/** The queue of the store, where it has one, and the callers in the replica that serves this page. */
function waitersOf({ queued = 0, waiting }) {
  return Math.max(queued, waiting);
}

function compare(one, other) {
  const valueOf = SORT_VALUES[sort.by];
  const [a, b] = [valueOf(one), valueOf(other)];
  if (a !== b) return a < b === sort.isDescending ? 1 : -1;
  if (one.key !== other.key) return one.key < other.key ? -1 : 1;
  return (one.permit ?? 0) - (other.permit ?? 0);
}

/** A key with permits may have several holders, each in a row of its own. */
const rowNameOf = ({ key, permit }) => JSON.stringify([key, permit]);

function createLockRow() {
  const cell = (className, label, ...contents) =>
    create('td', { class: className, ...(label && { 'data-label': label }) }, ...contents);
  const parts = {
    key: create('bdi'),
    permit: create('span', { class: 'permit' }),
    instance: create('bdi'),
    age: create('span'),
    lease: create('span'),
    waiting: create('span'),
    token: create('span'),
    release: create('button', { type: 'button' }, 'Release'),
  };
  const row = create(
    'tr',
    {},
    cell('key', '', parts.key, parts.permit),
    cell('instance', '', parts.instance),
    cell('number age', 'Held', parts.age),
    cell('number lease', 'Lease', parts.lease),
    cell('number waiting', 'Waiting', parts.waiting),
    cell('number token', 'Token', parts.token),
    cell('action', '', parts.release),
  );
  const entry = { row, parts, lock: undefined };
  parts.release.addEventListener('click', () => askToRelease(entry.lock));
  return entry;
}

function fillLockRow({ row, parts, lock }, nowMs) {
  setText(parts.key, visible(lock.key));
  parts.key.title = lock.key;
  setText(parts.permit, permitText(lock));
  setText(parts.instance, visible(lock.instance));
  setText(parts.age, duration(nowMs - Date.parse(lock.since)));
  parts.age.title = `since ${dateTime(lock.since)}`;
  setText(parts.lease, duration(lock.remainingMs));
  setText(parts.waiting, String(waitersOf(lock)));
  parts.waiting.parentElement.dataset.waiting = waitersOf(lock) > 0 ? 'some' : 'none';
  setText(parts.token, lock.fencingToken);
  const name = lock.permit === undefined ? lock.key : `${lock.key}, ${permitText(lock)}`;
  parts.release.setAttribute('aria-label', `Release ${name}`);
  parts.release.disabled = false;
  row.classList.remove('gone');
}

const permitText = ({ permit, mode }) => mode ?? (permit === undefined ? '' : `permit ${permit}`);

/** How long rows are held still for a pointer or a focus that does not move. */
const HELD_STILL_MS = 30_000;
let lastUsedMs = 0;
for (const type of ['pointermove', 'pointerdown', 'keydown', 'focusin'])
  body.addEventListener(type, () => (lastUsedMs = Date.now()), { passive: true });

/**
 * While somebody points at a row, rows neither move nor disappear, so that a click hits what it was meant for. But not for
 * ever: each second may add the rows of new locks.
 */
const isHeldStill = () =>
  byId('confirm').open || (Date.now() - lastUsedMs < HELD_STILL_MS && body.matches(':hover, :focus-within'));

function showLocks(next) {
  page = next;
  showPages();
  const { error, locks = [], nowMs } = page;
  if (error) return;
  const names = new Set(locks.map(rowNameOf));
  for (const lock of locks) {
    const entry = rows.get(rowNameOf(lock)) ?? createLockRow();
    rows.set(rowNameOf(lock), entry);
    entry.lock = lock;
    fillLockRow(entry, nowMs);
    if (!entry.row.isConnected) body.append(entry.row);
  }
  for (const [name, { row, parts }] of rows) {
    if (names.has(name)) continue;
    row.classList.add('gone');
    setText(parts.lease, isPaged() ? 'not on this page' : 'released');
    parts.release.disabled = true;
  }
  if (!isHeldStill()) arrange();
}

/** Removes the rows of released locks and puts the others in order. */
function arrange() {
  for (const [name, { row }] of rows) {
    if (!row.classList.contains('gone')) continue;
    row.remove();
    rows.delete(name);
  }
  const sorted = [...rows.values()].sort((one, other) => compare(one.lock, other.lock));
  sorted.forEach(({ row }, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
}

const isPaged = () => view.earlier.length > 0 || page?.nextCursor !== undefined;

function showPages() {
  const { error, locks = [], nextCursor: next } = page ?? {};
  const count = locks.length;
  const range = isPaged() ? `page ${view.earlier.length + 1}, ` : '';
  setText(byId('count'), page && !error ? `${range}${count} ${count === 1 ? 'lock' : 'locks'}` : '');
  byId('previous').disabled = view.earlier.length === 0;
  byId('next').disabled = next === undefined;
  setText(byId('lock-note'), noteOf(error, count));
}

function noteOf(error, count) {
  if (!page) return 'Reading …';
  if (error) return `Cannot read the locks: ${error}`;
  if (count === 0 && isPaged()) return 'No lock is held on this page.';
  if (count === 0) return view.prefix ? 'No held lock starts with this text.' : 'No lock is held.';
  return isPaged()
    ? 'There are more pages. The order applies to this page: type the start of a key to narrow it.'
    : '';
}

/** Shows another page of the locks, or other locks. */
function changeView(change) {
  Object.assign(view, change);
  page = undefined;
  for (const { row } of rows.values()) row.remove();
  rows.clear();
  showPages();
  connect();
}

/* ---- Jobs, leaders and events ---- */

function showRows(id, items, { create: createRow, nowMs, none }) {
  const section = byId(id);
  const rowsOfItems = items.map((item) => createRow(item, nowMs));
  replaceIfChanged(section.querySelector('tbody'), rowsOfItems);
  setText(section.querySelector('.note'), items.length === 0 ? none : '');
}

/** Leaves what has not changed alone, so that a selection, the focus and the tooltip of a cell stay. */
function replaceIfChanged(parent, elements) {
  elements.forEach((element, index) => {
    const present = parent.children[index];
    if (!present) parent.append(element);
    else if (present.isEqualNode(element)) return;
    else if (element.matches('tr') && present.dataset.key === element.dataset.key)
      replaceIfChanged(present, [...element.children]);
    else present.replaceWith(element);
  });
  while (parent.children.length > elements.length) parent.lastElementChild.remove();
}

const OUTCOME_MARKS = { running: '…', failed: '!', lost: '!', dead: '†', interrupted: '·', 'timed-out': '·' };

function createJob(job, nowMs) {
  const { key, schedule, timeZone, runs, missedTick, error } = job;
  const cells = runs.map((run) => {
    const text = describeRun(run);
    const attributes = { 'data-outcome': run.outcome, title: text, 'aria-label': text };
    if (run.isManual) attributes['data-manual'] = '';
    return create('li', attributes, OUTCOME_MARKS[run.outcome] ?? '');
  });
  const plan = [schedule, timeZone].filter(Boolean).join(' · ');
  const missed = missedTick && create('span', { class: 'mark bad' }, `missed ${dateTime(missedTick)}`);
  return create(
    'tr',
    { 'data-key': key },
    create(
      'td',
      { class: 'key' },
      create('bdi', { title: key }, visible(key)),
      create('bdi', { class: 'plan', title: plan }, visible(plan)),
      missed ?? '',
      create('ol', { class: 'runs' }, ...cells),
      error ? create('bdi', { class: 'bad' }, `Cannot read the runs: ${visible(error)}`) : '',
    ),
    createLastRun(job, nowMs),
    createNextTick(job, nowMs),
    create('td', { class: 'action' }, ...createJobButtons(job)),
  );
}

function createLastRun({ runs, running = [], readAtMs }, nowMs) {
  const [last] = runs;
  const [current] = running;
  const attributes = { class: 'number', title: last ? describeRun(last) : '' };
  if (current) {
    // Whether it still runs was known then.
    const text = duration((readAtMs ?? nowMs) - Date.parse(current.started));
    const where = create('bdi', { class: 'plan' }, `on ${visible(current.instance)}`);
    return create('td', attributes, create('span', { class: 'mark run' }, `runs ${text}`), where);
  }
  return create('td', attributes, last ? `${duration(nowMs - Date.parse(last.started))} ago` : 'never');
}

function createNextTick({ nextTick, isPaused, isFiring }, nowMs) {
  const attributes = { class: 'number', title: nextTick ? dateTime(nextTick) : '' };
  if (isPaused) return create('td', attributes, create('span', { class: 'mark warn' }, 'paused'));
  const text = nextTick ? duration(Date.parse(nextTick) - nowMs) : '';
  return create(
    'td',
    attributes,
    text,
    isFiring === false ? create('bdi', { class: 'plan' }, 'not here') : '',
  );
}

function createJobButtons({ key, isPaused }) {
  const button = (action, text) =>
    create(
      'button',
      { type: 'button', 'data-action': action, 'data-job': key, 'aria-label': `${text} ${visible(key)}` },
      text,
    );
  return [button('run', 'Run now'), isPaused ? button('resume', 'Resume') : button('pause', 'Pause')];
}

function describeRun({ tick, started, ended, outcome, instance, attempt, isManual, error }) {
  const took = ended ? ` after ${((Date.parse(ended) - Date.parse(started)) / 1000).toFixed(1)} s` : '';
  const kind = isManual ? ' (run now)' : '';
  const again = attempt > 1 ? `, attempt ${attempt}` : '';
  return `${dateTime(tick)}${kind}: ${outcome}${took} on ${instance}${again}${error ? `: ${error}` : ''}`;
}

function createLeader({ election, leader, error }, nowMs) {
  const isHere = leader?.instance === about.instance;
  return create(
    'tr',
    {},
    create('td', { class: 'key' }, create('bdi', { title: election }, visible(election))),
    create(
      'td',
      {},
      create(
        'bdi',
        {},
        leader ? visible(leader.instance) : error ? `Cannot be read: ${visible(error)}` : 'nobody',
      ),
      isHere ? ' (here)' : '',
    ),
    create('td', { class: 'number' }, leader ? duration(nowMs - Date.parse(leader.since)) : ''),
    create('td', { class: 'number token' }, leader ? leader.term : ''),
  );
}

function showEvents(events) {
  const items = events.map(({ event, subject, detail, isFault, atMs, count }) =>
    create(
      'li',
      { 'data-fault': String(isFault) },
      create('time', { datetime: new Date(atMs).toISOString(), title: dateTime(atMs) }, clockTime(atMs)),
      create('span', { class: 'name' }, event),
      create(
        'span',
        {},
        create('bdi', {}, visible(subject)),
        subject ? ': ' : '',
        visible(detail),
        count > 1 ? ` (${count} times)` : '',
      ),
    ),
  );
  replaceIfChanged(document.querySelector('#events ol'), items);
  setText(
    document.querySelector('#events .note'),
    items.length === 0 ? 'Nothing to report since it started.' : '',
  );
}

/* ---- Actions: each is confirmed, then posted as JSON ---- */

/** `field` is in the reply of the application, and in no other. */
const ACTIONS = {
  release: {
    title: 'Release this lock?',
    text:
      'Another caller can then get the lock. The present holder is not stopped at once: it notices the loss at its ' +
      'next renewal, and may work on until then.',
    cancel: 'Keep it',
    act: 'Release the lock',
    isDangerous: true,
    field: 'released',
    done: () => 'The lock was released.',
    refused: 'Not released: this holder no longer has the lock, or another caller of its process has it now.',
  },
  run: {
    title: 'Run this job now?',
    text: 'It runs once, beside its schedule. If a run of it is in progress, none is started.',
    cancel: 'Do not run it',
    act: 'Run it now',
    field: 'started',
    done: ({ started, instance }) =>
      started ? `The job runs on ${instance}.` : `Not started: the job is running on ${instance}.`,
  },
  pause: {
    title: 'Pause this job?',
    text: 'Its ticks are skipped in the whole cluster until somebody resumes it. A run in progress continues.',
    cancel: 'Do not pause it',
    act: 'Pause the job',
    field: 'paused',
    done: () => 'The job is paused.',
  },
  resume: {
    title: 'Resume this job?',
    text: 'It continues with its next tick. Ticks of the pause do not run.',
    cancel: 'Leave it paused',
    act: 'Resume the job',
    field: 'paused',
    done: () => 'The job continues with its next tick.',
  },
};

/** The action that the dialog asks about, and what is posted. */
let pending;
let messageTimer;

function ask(name, key, detail, sent) {
  const action = ACTIONS[name];
  pending = { name, sent };
  setText(byId('confirm-title'), action.title);
  setText(byId('confirm-key'), visible(key));
  setText(byId('confirm-detail'), detail);
  setText(byId('confirm-text'), action.text);
  setText(byId('confirm-cancel'), action.cancel);
  setText(byId('confirm-act'), action.act);
  setText(byId('confirm-result'), '');
  byId('confirm-act').classList.toggle('danger', action.isDangerous === true);
  byId('confirm-act').disabled = false;
  byId('confirm').showModal();
}

function askToRelease({ key, permit, instance, fencingToken }) {
  const what = permit === undefined ? 'Held' : `Its permit ${permit} is held`;
  const detail = `${what} by ${visible(instance)} with token ${fencingToken}.`;
  ask('release', key, detail, { key, fencingToken, permit });
}

async function act() {
  const own = pending;
  byId('confirm-act').disabled = true;
  const { message, failure } = await post(own);
  if (failure === undefined) showMessage(message);
  // Somebody may have closed the dialog, and asked for something else.
  if (own !== pending) return;
  setText(byId('confirm-result'), failure ?? '');
  if (failure === undefined) byId('confirm').close();
}

/** Returns what was done, or why it was not. */
async function post({ name, sent }) {
  const { done, refused, field } = ACTIONS[name];
  try {
    const response = await fetch(new URL(name, import.meta.url), {
      method: 'POST',
      redirect: 'manual',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(sent),
    });
    const result = await response.json().catch(() => ({}));
    if (response.ok && field in result) return { message: done(result) };
    if (meansRefusal(response.status)) return { failure: REFUSED };
    if (response.status === 409) return { failure: refused ?? visible(String(result.message)) };
    if (response.status === 404)
      return { failure: 'Not done: the replica behind this page has no such job.' };
    if (response.status === 503) return { failure: 'The store did not confirm it: look, and try again.' };
    if (response.status >= 500) return { failure: `${UNKNOWN}: the server answers ${response.status}.` };
    return { failure: `Not done: the server answers ${response.status}.` };
  } catch {
    return { failure: `${UNKNOWN}: the connection was lost.` };
  }
}

const REFUSED = 'Not done: access refused. Sign in again and reload this page.';
const UNKNOWN = 'It is not known whether it was done';

function showMessage(text) {
  const message = byId('message');
  message.hidden = false;
  setText(message, text);
  clearTimeout(messageTimer);
  messageTimer = setTimeout(() => (message.hidden = true), 6000);
}

/* ---- What the person does ---- */

let filterTimer;
const input = byId('prefix');
input.value = view.prefix;

function filter() {
  clearTimeout(filterTimer);
  if (input.value === view.prefix) return;
  const url = new URL(location.href);
  if (input.value) url.searchParams.set('prefix', input.value);
  else url.searchParams.delete('prefix');
  history.replaceState(null, '', url);
  changeView({ prefix: input.value, cursor: '', earlier: [] });
}

input.addEventListener('input', () => {
  clearTimeout(filterTimer);
  filterTimer = setTimeout(filter, 250);
});
input.addEventListener('change', filter);
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target.matches('input') || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  input.focus();
});
byId('next').addEventListener('click', () =>
  changeView({ cursor: page.nextCursor, earlier: [...view.earlier, view.cursor] }),
);
byId('previous').addEventListener('click', () =>
  changeView({ cursor: view.earlier.at(-1), earlier: view.earlier.slice(0, -1) }),
);
table.tHead.addEventListener('click', ({ target }) => {
  const by = target.dataset.sort;
  if (!by) return;
  // The first click shows what matters most: the oldest lock, the longest queue.
  sort.isDescending = sort.by === by ? !sort.isDescending : by !== 'key';
  sort.by = by;
  for (const button of table.querySelectorAll('[data-sort]')) {
    const order = sort.isDescending ? 'descending' : 'ascending';
    button.parentElement.setAttribute('aria-sort', button.dataset.sort === by ? order : 'none');
  }
  arrange();
});
body.addEventListener('pointerleave', () => setTimeout(() => isHeldStill() || arrange()));
body.addEventListener('focusout', () => setTimeout(() => isHeldStill() || arrange()));
byId('confirm-act').addEventListener('click', () => void act());
byId('jobs').addEventListener('click', ({ target }) => {
  const { action, job } = target.dataset;
  if (action) ask(action, job, '', { job });
});
document.addEventListener('visibilitychange', connect);
addEventListener('online', connect);
connect();
