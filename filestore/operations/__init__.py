"""Operations that change the files of a whole table: folds, changes of the definition, change data of overwrites."""
