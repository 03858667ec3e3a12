// The chat page: chooses and loads a model, then talks to it.

import { load } from './blueshift/index.js';
import { explain } from './explain.js';
import { megabytes, milliseconds, speed } from './format.js';
import { describe, fill } from './profile.js';

const DEFAULT_MODEL = 'models/SmolLM2-135M-Instruct.Q4_1.gguf';

const ids = [
  'model-name', 'new-chat', 'unload', 'notice', 'picker', 'url-form', 'url', 'drop', 'file', 'loading', 'loading-title',
  'progress', 'progress-text', 'cancel', 'chat', 'messages', 'empty', 'suggestions', 'status', 'composer', 'prompt',
  'send', 'stop', 'settings', 'temperature', 'temperature-value', 'max-tokens', 'top-k', 'top-p', 'min-p', 'typical-p',
  'repeat-penalty', 'seed', 'facts', 'tps', 'ttft', 'backend', 'adapter', 'selftest', 'profile',
  'profile-run', 'profile-copy', 'profile-note', 'profile-table',
];
/** Settings by the option that each is; an empty one leaves the option out. */
const settings = {
  temperature: 'temperature', topK: 'top-k', topP: 'top-p', minP: 'min-p', typicalP: 'typical-p', repeatPenalty: 'repeat-penalty', seed: 'seed',
};
/** What the profile runs: few tokens, so that slow devices end soon. */
const PROFILED = { promptTokens: 32, tokens: 16 };
/** The page's elements by id. */
const ui = Object.fromEntries(ids.map((id) => [id, document.getElementById(id)]));
const query = new URLSearchParams(location.search);

/** The loaded model. */
let model;
/** Ends the load or the generation under way. */
let running;
/** The chat so far, as the model reads it. */
let history = [];
/** The last profile of the loaded model. */
let profile;

// --- choosing and loading

function show(view) {
  for (const name of ['picker', 'loading', 'chat']) ui[name].hidden = name !== view;
  for (const name of ['composer', 'settings', 'profile', 'facts', 'new-chat', 'unload']) ui[name].hidden = view !== 'chat';
}

function say(text, isError = false) {
  ui.status.textContent = text;
  ui.status.classList.toggle('error', isError);
}

function chosenBackend() {
  return document.querySelector('input[name=backend]:checked').value;
}

async function open(source, name) {
  running?.abort();
  model?.dispose();
  model = undefined;
  const controller = (running = new AbortController());
  show('loading');
  ui['loading-title'].textContent = `Loading ${name}`;
  ui.progress.removeAttribute('value');
  ui['progress-text'].textContent = 'Reading the header and checking the device';
  say('');
  try {
    const options = { backend: chosenBackend(), signal: controller.signal, onProgress: progressShower() };
    model = await load(source, options);
    introduce(model.info, name);
  } catch (error) {
    if (running !== controller) return;
    show('picker');
    if (controller.signal.aborted) say('The load was cancelled.');
    else say(explain(error), true);
  }
}

/** Shows progress with its rate since the load began. */
function progressShower() {
  const start = performance.now();
  return ({ bytes, total }) => {
    const seconds = (performance.now() - start) / 1000;
    ui.progress.value = total > 0 ? bytes / total : 1;
    ui['progress-text'].textContent =
      bytes < total
        ? `${megabytes(bytes)} of ${megabytes(total)} MB, ${megabytes(bytes / seconds)} MB/s`
        : 'Preparing the model';
  };
}

function introduce(info, name) {
  ui['model-name'].textContent = info.name || name;
  ui['model-name'].title = `${info.architecture}, ${(info.parameters / 1e6).toFixed(0)} million parameters, context of ${info.contextLength} tokens`;
  ui.backend.textContent = info.backend === 'wgpu' ? 'WebGPU' : 'CPU';
  ui.backend.dataset.value = info.backend;
  ui.adapter.textContent = info.adapter;
  ui.selftest.textContent = info.exact ? 'passed, exact bits' : 'not passed';
  ui.selftest.dataset.value = info.exact ? 'passed' : 'failed';
  if (info.fallbackReason) notify(`It runs on the CPU, which is slower: ${info.fallbackReason}`);
  else if (info.backend === 'wgpu') ui.notice.hidden = true;
  show('chat');
  showProfile(undefined);
  newChat();
}

function notify(text) {
  ui.notice.textContent = text;
  ui.notice.hidden = false;
}

// --- chatting

function newChat() {
  running?.abort();
  history = [];
  ui.messages.replaceChildren();
  ui.empty.hidden = false;
  ui.tps.textContent = ui.ttft.textContent = '–';
  say('Ready.');
  ui.prompt.focus();
}

function addMessage(role, text) {
  ui.empty.hidden = true;
  const item = document.createElement('li');
  item.className = role;
  item.textContent = text;
  ui.messages.append(item);
  item.scrollIntoView({ block: 'end' });
  return item;
}

/** What the settings say; without a seed each answer has another. */
function chosenSampling() {
  const given = Object.entries(settings).map(([option, id]) => [option, ui[id].valueAsNumber]);
  const seed = crypto.getRandomValues(new Uint32Array(1))[0];
  return { seed, ...Object.fromEntries(given.filter(([, value]) => !Number.isNaN(value))) };
}

async function send(text) {
  if (model === undefined || running?.busy || text.trim() === '') return;
  const controller = (running = Object.assign(new AbortController(), { busy: true }));
  const chat = history;
  const turns = chat.length;
  chat.push({ role: 'user', content: text });
  const question = addMessage('user', text);
  document.getElementById('output')?.removeAttribute('id');
  const answer = addMessage('assistant', '');
  answer.id = 'output';
  answer.classList.add('writing');
  setBusy(true);
  try {
    const generation = model.generate(chat, {
      maxTokens: Math.max(1, Math.floor(ui['max-tokens'].valueAsNumber) || 512),
      ...chosenSampling(),
      signal: controller.signal,
    });
    await stream(generation, answer);
    chat.push({ role: 'assistant', content: answer.textContent });
    say(ending((await generation.result).stopReason));
  } catch (error) {
    // What was answered before the user stopped it belongs to the chat; a turn that failed or was never answered does not.
    if (controller.signal.aborted && answer.textContent !== '') chat.push({ role: 'assistant', content: answer.textContent });
    else withdraw(chat, turns, question, answer);
    if (controller.signal.aborted) say('Stopped.');
    else say(explain(error), true);
  } finally {
    controller.busy = false;
    answer.classList.remove('writing');
    setBusy(false);
  }
}

/** Takes a turn out of the chat and gives its question back, to be changed or sent again; a broken answer stays in sight. */
function withdraw(chat, turns, question, answer) {
  chat.length = turns;
  if (answer.textContent !== '' || !question.isConnected) return;
  if (ui.prompt.value === '') ui.prompt.value = question.textContent;
  question.remove();
  answer.remove();
  ui.empty.hidden = ui.messages.childElementCount > 0;
}

/** Shows the text as it comes, and its speed: tokens after the first by the time they took. */
async function stream(generation, answer) {
  const start = performance.now();
  let first;
  for await (const part of generation.parts()) {
    if (part.type === 'reasoning') say('Thinking…');
    if (part.type !== 'content') continue;
    if (answer.textContent === '') say('Writing…');
    const follow = isAtEnd();
    answer.append(part.text);
    if (follow) answer.scrollIntoView({ block: 'end' });
    const now = performance.now();
    if (first === undefined) {
      first = { at: now, tokens: generation.ids.length };
      ui.ttft.textContent = milliseconds(now - start);
    } else {
      ui.tps.textContent = speed(generation.ids.length - first.tokens, now - first.at);
    }
  }
  const { timings } = await generation.result;
  ui.ttft.textContent = milliseconds(timings.firstTokenMs);
  if (timings.decodeTokens > 0) ui.tps.textContent = speed(timings.decodeTokens, timings.decodeMs);
}

/** Whether the end of the chat is in sight, so that it should stay there. */
function isAtEnd() {
  const { scrollHeight, scrollTop, clientHeight } = document.querySelector('main');
  return scrollHeight - scrollTop - clientHeight < 80;
}

function ending(stopReason) {
  if (stopReason === 'max_tokens') return 'The answer reached the most tokens allowed.';
  if (stopReason === 'context_full') return 'The model can read no more; start a new chat.';
  return 'Ready.';
}

function setBusy(busy) {
  ui.send.hidden = busy;
  ui.stop.hidden = !busy;
  ui['profile-run'].disabled = busy;
  ui.messages.setAttribute('aria-busy', String(busy));
  if (busy) say('Writing…');
  // On touch screens the focus would bring up the keyboard over the answer.
  else if (matchMedia('(pointer: fine)').matches) ui.prompt.focus();
}

// --- profiling

async function measure() {
  if (model === undefined || running?.busy) return;
  const controller = (running = Object.assign(new AbortController(), { busy: true }));
  setBusy(true);
  say('Measuring…');
  try {
    showProfile(await model.profile({ ...PROFILED, signal: controller.signal }));
    say('Ready.');
  } catch (error) {
    if (controller.signal.aborted) say('Stopped.');
    else say(explain(error), true);
  } finally {
    controller.busy = false;
    setBusy(false);
  }
}

/** Shows a profile, or that there is none. */
function showProfile(measured) {
  profile = measured;
  for (const name of ['profile-copy', 'profile-note', 'profile-table']) ui[name].hidden = profile === undefined;
  if (profile === undefined) return;
  ui['profile-note'].textContent = describe(profile);
  fill(ui['profile-table'], profile);
}

async function copyProfile() {
  try {
    await navigator.clipboard.writeText(JSON.stringify(profile, null, 2));
    say('The profile was copied.');
  } catch {
    say('The browser does not let this page write to the clipboard.', true);
  }
}

// --- what the user does

ui['url-form'].addEventListener('submit', (event) => {
  event.preventDefault();
  openUrl(ui.url.value.trim());
});

function openUrl(url) {
  open(url, fileName(url));
}

/** The last part of an address, as people write it. */
function fileName(url) {
  const name = url.split(/[?#]/)[0].split('/').pop() || url;
  try {
    return decodeURIComponent(name);
  } catch {
    // A percent sign of its own.
    return name;
  }
}

ui.file.addEventListener('change', () => {
  const [file] = ui.file.files;
  if (file) open(file, file.name);
  // Picking the same file again is to be a change, too.
  ui.file.value = '';
});

for (const type of ['dragover', 'dragleave', 'drop']) {
  document.addEventListener(type, (event) => {
    event.preventDefault();
    ui.drop.classList.toggle('over', type === 'dragover');
    const [file] = (type === 'drop' && event.dataTransfer?.files) || [];
    if (file) open(file, file.name);
  });
}

ui.cancel.addEventListener('click', () => running?.abort());
ui.stop.addEventListener('click', () => running?.abort());
ui['profile-run'].addEventListener('click', measure);
ui['profile-copy'].addEventListener('click', copyProfile);
ui['new-chat'].addEventListener('click', newChat);
ui.unload.addEventListener('click', () => {
  running?.abort();
  model?.dispose();
  model = undefined;
  ui['model-name'].textContent = 'no model loaded';
  show('picker');
  say('');
});

ui.composer.addEventListener('submit', (event) => {
  event.preventDefault();
  if (running?.busy) return;
  const text = ui.prompt.value;
  ui.prompt.value = '';
  send(text);
});

ui.prompt.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  ui.composer.requestSubmit();
});

ui.suggestions.addEventListener('click', (event) => {
  if (event.target instanceof HTMLButtonElement) send(event.target.textContent);
});

ui.temperature.addEventListener('input', () => {
  ui['temperature-value'].textContent = ui.temperature.value;
});

// --- start

/** Says plainly where WebGPU is missing. */
async function checkGpu() {
  // The first request can fail while the browser's GPU process starts.
  for (let tries = 0; navigator.gpu && tries < 3; tries++) {
    if (await navigator.gpu.requestAdapter().catch(() => null)) return;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  const why = navigator.gpu ? 'WebGPU finds no usable graphics adapter' : 'This browser has no WebGPU';
  notify(`${why}, so models run on the CPU here. They give the same answers, only slower.`);
}

ui.url.value = query.get('model') ?? DEFAULT_MODEL;
const backend = document.querySelector(`input[name=backend][value="${CSS.escape(query.get('backend') ?? 'auto')}"]`);
if (backend) backend.checked = true;
if (chosenBackend() !== 'cpu') checkGpu();
if (query.has('model')) openUrl(ui.url.value);
