"""Do frameworks do the same work, and do the cells of tables follow from each other?"""
