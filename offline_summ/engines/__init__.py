"""The engines that run a judge, behind one seam (`base.py`)."""
