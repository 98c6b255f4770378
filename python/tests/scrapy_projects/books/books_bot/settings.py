BOT_NAME = "books"
SPIDER_MODULES = ["books_bot.spiders"]
ROBOTSTXT_OBEY = True
