// The profile of a model as a table.

const METHODS = {
  timestamps: 'timestamps of the GPU',
  batches: 'many repetitions of each operation, since the browser gives no exact timestamps; only decoding is timed so',
  clock: 'the clock',
};
const COLUMNS = ['Operation', 'Count', 'Total ms', 'Mean µs', 'Share'];

/** One line on what was measured and how. */
export function describe({ method, phases }) {
  const parts = phases.map(({ phase, tokens, gpuMs }) => {
    const busy = gpuMs === null ? '' : `, ${gpuMs.toFixed(1)} ms`;
    return `${phase}: ${tokens} tokens${busy}`;
  });
  return `${parts.join('; ')}. Timed by ${METHODS[method]}.`;
}

/** Fills the table with the operations of each phase, the longest first. */
export function fill(table, { phases, ops }) {
  const head = document.createElement('thead');
  head.append(row(COLUMNS, 'th', 'col'));
  const bodies = phases.map(({ phase }) => body(phase, ops.filter((op) => op.phase === phase)));
  table.replaceChildren(head, ...bodies.filter((part) => part.rows.length > 1));
}

function body(phase, ops) {
  const part = document.createElement('tbody');
  part.dataset.phase = phase;
  const title = row([phase], 'th', 'rowgroup');
  title.cells[0].colSpan = COLUMNS.length;
  const lines = ops.map(({ label, count, totalMs, meanUs, share }) =>
    row([label, count, totalMs.toFixed(2), meanUs.toFixed(1), `${(share * 100).toFixed(1)} %`]),
  );
  part.append(title, ...lines);
  return part;
}

function row(texts, kind = 'td', scope = '') {
  const line = document.createElement('tr');
  for (const text of texts) {
    const cell = document.createElement(kind);
    cell.textContent = text;
    if (scope) cell.scope = scope;
    line.append(cell);
  }
  return line;
}
