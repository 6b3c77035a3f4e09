"""Write every Dockerfile anew."""

from tests.unit.dockerfiles import HERE, file, plans, text

for left in HERE.glob("*.Dockerfile"):
    left.unlink()
for name, there in plans().items():
    file(name).write_text(text(there))
