import time
def test_a(tiny_checkpoint, words):
    from edgeformer.models.checkpoint import load_checkpoint
    from edgeformer.exporter import reference
    from tokenizers import Tokenizer
    from collections import Counter
    m=load_checkpoint(tiny_checkpoint); t=Tokenizer.from_file(str(tiny_checkpoint/'tokenizer.json'))
    out=reference.greedy(m,[t.encode(w).ids for w in words],31)
    print(sorted(Counter(map(len,out)).items()), len(set(map(tuple,out))))
    print([words[3],out[3]],[words[20],out[20]])
def test_b(tiny_bundle):
    import subprocess
    print(subprocess.run(['ls','-lR',tiny_bundle],capture_output=True,text=True).stdout)
