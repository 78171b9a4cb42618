/* Which words of two answers differ (Myers' algorithm), within bounds: a page must not stop at two long texts. */

const MOST_TOKENS = 12000; // of both texts, without what they begin and end with alike
const MOST_EDITS = 1200;

/* Two lists of [text, differs], one for each side; null where the texts are too long or have too little in common. */
function differences(before, after) {
  const words = (text) => text.match(/\p{L}[\p{L}\p{M}\p{N}_]*|\p{N}+|\s+|./gsu) ?? [];
  const [one, two] = [words(before), words(after)];
  let start = 0;
  while (start < one.length && start < two.length && one[start] === two[start]) start++;
  let end = 0;
  while (end < one.length - start && end < two.length - start && one.at(-1 - end) === two.at(-1 - end)) end++;
  const [left, right] = [one.slice(start, one.length - end), two.slice(start, two.length - end)];
  if (left.length + right.length > MOST_TOKENS) return null;
  const kept = commonTokens(left, right);
  if (kept === null) return null;
  const side = (tokens, own, marks) => [
    ...tokens.slice(0, start).map((token) => [token, false]),
    ...own.map((token, place) => [token, !marks.has(place)]),
    ...tokens.slice(tokens.length - end).map((token) => [token, false]),
  ];
  return [joined(side(one, left, kept.left)), joined(side(two, right, kept.right))];
}

/* The places of the tokens that both have, in order; null where more edits are needed than we look for. */
function commonTokens(left, right) {
  const [n, m] = [left.length, right.length];
  const history = [];
  let furthest = new Map([[1, 0]]);
  for (let edits = 0; edits <= n + m; edits++) {
    if (edits > MOST_EDITS) return null;
    history.push(new Map(furthest));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < n && y < m && left[x] === right[y]) {
        x++;
        y++;
      }
      furthest.set(k, x);
      if (x >= n && y >= m) return backtrack(history, n, m);
    }
  }
  return { left: new Set(), right: new Set() };
}

function backtrack(history, n, m) {
  const kept = { left: new Set(), right: new Set() };
  let [x, y] = [n, m];
  for (let edits = history.length - 1; edits >= 0; edits--) {
    const furthest = history[edits];
    const k = x - y;
    const down = k === -edits || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const fromX = furthest.get(from) ?? 0;
    const fromY = fromX - from;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      x--;
      y--;
      kept.left.add(x);
      kept.right.add(y);
    }
    if (edits > 0) [x, y] = [fromX, fromY];
  }
  return kept;
}

/* Neighbours that differ alike as one piece; white space between two that differ differs too. */
function joined(tokens) {
  const pieces = [];
  tokens.forEach(([token, differs], place) => {
    const between = !differs && !token.trim() && tokens[place - 1]?.[1] && tokens[place + 1]?.[1];
    const marked = differs || between;
    if (pieces.length && pieces.at(-1)[1] === marked) pieces.at(-1)[0] += token;
    else pieces.push([token, marked]);
  });
  return pieces;
}
