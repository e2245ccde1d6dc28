from pathlib import Path
from ...training_script.model.divergences import divergences, OverBudget
from ..rule_context import Script, Violation
def check(script):
    path=Path(script.source.path)
    try: found=divergences(script.source.tree, path, script.source.text)
    except (OverBudget,RecursionError): return []
    out=[]
    for d in found:
        sites=[*d.calls,d.first.site]
        here=[s for s in sites if s.path==str(path)]
        if d.decided.path==str(path): pass
        if not here: continue
        s=here[-1]
        sev=None if d.first.sure and d.by==1 else 'warning'
        out.append(Violation(line=s.line,column=s.column,end_line=s.end_line,message=f'{d.first.kind} diverges by {d.by} decided {d.decided.line} second {d.second and d.second.kind}',confidence=.8,severity=sev,branch=d.decided.line if d.decided.path==str(path) else None))
    return out
