"""python -m plackett"""

from plackett.cli import main

if __name__ == "__main__":
    main()
