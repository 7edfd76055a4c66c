"""The page's CSS and its few lines of JavaScript."""

CSS = """
:root{color-scheme:light dark;--bg:#fbfbfd;--fg:#1b1b1f;--soft:#5c5c66;--line:#e1e1e8;--card:#fff;--code:#f3f3f7;
--blue:#0b5cad;--good:#1a7f4b;--good-bg:#e3f4ea;--bad:#b3261e;--bad-bg:#fbe4e1;--warn:#8a5a00;--warn-bg:#fbf0d4;
--p-capture:#9cc3ea;--p-aot:#f3c08b;--p-backend:#a6dcc0;--p-emit:#e3b8d6;--p-other:#cfcfd8}
@media (prefers-color-scheme:dark){:root{--bg:#141417;--fg:#e9e9ee;--soft:#a5a5b0;--line:#2e2e35;--card:#1c1c21;
--code:#202026;--blue:#7db8f7;--good:#6fd39f;--good-bg:#14301f;--bad:#ff9b8f;--bad-bg:#3d1714;--warn:#f0c36b;
--warn-bg:#3a2c0a;--p-capture:#2c5f94;--p-aot:#8a5720;--p-backend:#20704c;--p-emit:#7d4769;--p-other:#4a4a54}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
header{position:sticky;top:0;z-index:2;background:var(--bg);border-bottom:1px solid var(--line);padding:10px 28px;
display:flex;flex-wrap:wrap;gap:6px 28px;align-items:baseline}
h1{font-size:20px;margin:0}h1 small{font-weight:400;color:var(--soft);font-size:14px}
nav{display:flex;flex-wrap:wrap;gap:4px 18px}nav a{color:var(--blue);text-decoration:none}
nav a:hover{text-decoration:underline}
main{max-width:1240px;margin:0 auto;padding:8px 28px 60px}
footer{color:var(--soft);padding:14px 28px;text-align:center}
section{scroll-margin-top:56px}h2{font-size:18px;margin:34px 0 10px}h4{margin:16px 0 4px}small{color:var(--soft)}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin-top:20px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 18px;color:var(--soft);
min-width:120px}
.card b{display:block;font-size:24px;color:var(--fg);line-height:1.2}.card.bad b{color:var(--bad)}
details{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:8px 0}
details[hidden]{display:none}
summary{cursor:pointer;padding:7px 12px}details>.body,details>.scroll{padding:0 12px 10px}
details details{background:transparent}
details.inline{border:0;margin:0}details.inline>summary{padding:0}details.inline>.body{padding:4px 0}
.number{color:var(--soft);font-variant-numeric:tabular-nums}
.scroll{overflow:auto;max-height:80vh}
table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600;color:var(--soft);font-size:13px}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);vertical-align:top}.n{text-align:right;white-space:nowrap;
font-variant-numeric:tabular-nums}tbody tr:last-child td{border-bottom:0}
code,pre{font:13px/1.45 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre.code{background:var(--code);border-radius:6px;padding:10px 12px;overflow:auto;max-height:60vh;margin:4px 0}
.two td{overflow-wrap:anywhere}
.two td:first-child,.two td:last-child{white-space:nowrap}.launches td:nth-child(2){min-width:170px}
.source td{border:0;padding:0 10px;vertical-align:baseline}
.source td:first-child{width:1%;text-align:right;color:var(--soft);
font:13px/1.45 ui-monospace,Menlo,Consolas,monospace;border-right:4px solid transparent}
.source code{white-space:pre}.source tr.captured td:first-child{border-right-color:var(--good)}
.source tr.captured td{background:var(--good-bg)}
.source tr.break td:first-child{border-right-color:var(--bad)}.source tr.break td{background:var(--bad-bg)}
.source tr.eager td:first-child{border-right-color:var(--warn)}.source tr.eager td{background:var(--warn-bg)}
.source tr.skip td{color:var(--soft);font-size:12px;padding:3px 10px}
.note{margin:2px 0 4px;color:var(--soft)}.note b{color:var(--fg)}.note.break b{color:var(--bad)}
.note.eager b,.note.again b{color:var(--warn)}
.badge{font-size:12px;border-radius:10px;padding:1px 8px;background:var(--code);color:var(--soft)}
.badge.break{background:var(--bad-bg);color:var(--bad)}
.badge.again,.badge.eager{background:var(--warn-bg);color:var(--warn)}
.hints{margin:0;padding-left:20px}.hints li{margin:3px 0;overflow-wrap:anywhere}
input[type=search]{width:100%;padding:8px 12px;border-radius:8px;border:1px solid var(--line);background:var(--card);
color:var(--fg);font:inherit}
meter{width:70px;height:10px;vertical-align:middle}
svg.timeline,svg.memory{width:100%;min-width:700px;height:auto;display:block}
svg.timeline text,svg.memory text{font:11px system-ui,sans-serif;fill:var(--fg)}svg .f{fill:var(--soft)!important}
svg .e{text-anchor:end}.cut{stroke:var(--soft);stroke-dasharray:2 3}
.p-capture rect{fill:var(--p-capture)}.p-aot rect{fill:var(--p-aot)}.p-backend rect{fill:var(--p-backend)}
.p-emit rect{fill:var(--p-emit)}.p-extension rect,.p-load rect,.p-other rect{fill:var(--p-other)}
svg.memory path{fill:var(--p-capture);stroke:var(--blue)}.zone{fill:transparent}
.zone:hover{fill:var(--soft);fill-opacity:.25}
"""

SCRIPT = """
"use strict";
document.addEventListener("toggle", event => {
  const part = event.target;
  if (!part.open || !part.dataset.later) return;
  const text = document.getElementById(part.dataset.later).textContent;
  part.querySelector(":scope > .body").innerHTML = JSON.parse(text);
  delete part.dataset.later;
}, true);
const find = document.getElementById("find");
if (find) find.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(" ").filter(Boolean);
  for (const part of document.querySelectorAll("details.frame"))
    part.hidden = !words.every(word => part.dataset.find.includes(word));
});
"""
