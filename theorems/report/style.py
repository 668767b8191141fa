"""Style sheet of a report. Colour-blind readers can distinguish the colours, and text says what each colour means."""

STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c1c1e; --soft: #56565c; --rule: #d8d8dc; --box: #f3f3f5; --link: #00528f;
  --curve: #0072b2; --limit: #b34700; --right: #00694a; --wrong: #a83600; --open: #755000;
  --shade-0: #eef1f5; --shade-1: #c6dbef; --shade-2: #9ecae1; --shade-3: #6baed6; --shade-4: #08519c;
  --on-light: #1c1c1e; --on-dark: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #17181b; --ink: #e8e8ea; --soft: #aeb0b8; --rule: #3b3d44; --box: #222429; --link: #8cc4f5;
    --curve: #56b4e9; --limit: #f0a060; --right: #5fd3a8; --wrong: #ff9e6b; --open: #e6b84d;
    --shade-0: #22262c; --shade-1: #17364f; --shade-2: #1c4a70; --shade-3: #235f91; --shade-4: #9ecae1;
    --on-light: #f2f2f4; --on-dark: #121316;
  }
}
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; margin: 2.2rem 0 0.8rem; }
h1 { font-size: 1.5rem; margin-top: 1rem; }
a { color: var(--link); }
.lead { font-size: 1.25rem; line-height: 1.4; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.88rem; min-width: 60%; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--rule); }
thead th { border-bottom: 2px solid var(--soft); white-space: nowrap; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.92em; }
p code { overflow-wrap: anywhere; }
td code { white-space: nowrap; }
pre { background: var(--box); padding: 0.8rem; overflow-x: auto; }
details { margin: 1.5rem 0; } summary { cursor: pointer; color: var(--link); }
figure { margin: 1.5rem 0; } figcaption { color: var(--soft); font-size: 0.88rem; }
figure div { display: flex; flex-wrap: wrap; gap: 0.5rem 1.5rem; }
svg { width: 100%; height: auto; flex: 1 1 17rem; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); }
svg .sub { font-size: 8px; }
svg path, svg polyline { fill: none; }
svg .axis { stroke: var(--rule); stroke-width: 1; }
svg .curve { stroke: var(--curve); stroke-width: 2; }
svg .limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 5 3; }
svg text.limit { fill: var(--limit); stroke: none; }
svg .start, svg .claim { fill: var(--curve); }
svg .claim { fill-opacity: 0.5; }
svg .wrong { fill: var(--wrong); }
.share { white-space: nowrap; }
.bar { display: inline-block; width: 4rem; height: 0.55rem; margin-right: 0.5rem; background: var(--shade-1); }
.bar span { display: block; height: 100%; background: var(--curve); }
.bar.over span { background: var(--wrong); }
.heat th, .heat td { padding: 0.25rem 0.4rem; border: 1px solid var(--paper); white-space: nowrap; }
.heat td, .heat th + th { text-align: center; }
.heat tbody th { position: sticky; left: 0; background: var(--paper); font-weight: normal; }
.shade-0 { background: var(--shade-0); color: var(--ink); }
.shade-1 { background: var(--shade-1); color: var(--on-light); }
.shade-2 { background: var(--shade-2); color: var(--on-light); }
.shade-3 { background: var(--shade-3); color: var(--on-light); }
.shade-4 { background: var(--shade-4); color: var(--on-dark); }
.upheld { color: var(--right); } .falsified { color: var(--wrong); font-weight: bold; }
.inconclusive { color: var(--open); } .not-applicable { color: var(--soft); }
@media (max-width: 40rem) { .heat tbody th { position: static; } }
"""
